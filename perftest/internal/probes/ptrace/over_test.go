package ptrace

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// traceOver is trace that steps over functions with the given suffix.
func traceOver(t *testing.T, scenario, suffix string) (windows []Window, err error) {
	t.Helper()
	p := program(scenario, 0)
	p.Over = func(pc uint64) bool {
		f := runtime.FuncForPC(uintptr(pc))
		return f != nil && uint64(f.Entry()) == pc && strings.HasSuffix(f.Name(), suffix)
	}
	err = Run(t.Context(), p, func(w Window) error {
		w.Steps = slices.Clone(w.Steps)
		windows = append(windows, w)
		return nil
	})
	skipForbidden(t, err)
	return windows, err
}

// Of a function that is stepped over, only the first instruction is recorded, and none of its callees. All
// instructions around it are recorded.
func TestRun_Over(t *testing.T) {
	testenv.SkipRace(t, "the detector is part of what is stepped through")
	const calls = 2
	all, err := trace(t, "calls", 0)
	require.NoError(t, err)
	without, err := traceOver(t, "calls", "ptrace.triangle")
	require.NoError(t, err)
	require.Len(t, without, len(all))
	all = slices.DeleteFunc(all, preempted)
	require.NotEmpty(t, all)
	for i, w := range without {
		assert.Equal(t, calls, count(w, "ptrace.triangle"), "window %d", i)
		assert.Equal(t, KnownLen, count(w, "ptrace.known"), "window %d", i)
		if !preempted(w) {
			assert.Equal(t, len(all[0].Steps)-count(all[0], "ptrace.triangle")+calls, len(w.Steps), "window %d", i)
		}
	}
}

// Another thread returns from the function to the same address at the same time.
func TestRun_OverInTwoThreads(t *testing.T) {
	testenv.SkipRace(t, "the detector is part of what is stepped through")
	windows, err := traceOver(t, "two callers", "ptrace.nap")
	require.NoError(t, err)
	require.Len(t, windows, 50)
	for i, w := range windows {
		assert.Equal(t, 1, count(w, "ptrace.nap"), "window %d", i)
		assert.Positive(t, count(w, "ptrace.callNap"), "window %d", i)
	}
}

func TestRun_OverWhatDoesNotReturn(t *testing.T) {
	_, err := traceOver(t, "no return", "ptrace.leave")
	assert.ErrorContains(t, err, " before 0x")
}

// An instruction with a repeat prefix is one step, without a trap for each repetition.
func TestRun_OverRepetitions(t *testing.T) {
	testenv.SkipRace(t, "the detector checks each byte of the copy")
	windows, err := trace(t, "copy", copyLen/2)
	require.NoError(t, err)
	require.Len(t, windows, 2)
	for i, w := range windows {
		assert.Positive(t, count(w, "bulk.copyLong"), "window %d", i)
	}
}

func TestRepeats(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only amd64 has instructions with a repeat prefix")
	}
	for _, tc := range []struct {
		name string
		text []byte
		want int
	}{
		{"rep movsb", []byte{0xf3, 0xa4, 0xc3, 0xcc}, 2},
		{"rep stosq", []byte{0xf3, 0x48, 0xab, 0xc3}, 3},
		{"repne scasb", []byte{0xf2, 0xae, 0xc3, 0xcc}, 2},
		{"pause", []byte{0xf3, 0x90, 0xf3, 0xa4}, 0},
		{"popcnt", []byte{0xf3, 0x48, 0x0f, 0xb8}, 0},
		{"movsb", []byte{0xa4, 0xc3, 0xcc, 0xcc}, 0},
		{"unreadable", make([]byte, textLen), 0},
	} {
		assert.Equal(t, tc.want, repeats(tc.text), tc.name)
	}
}
