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

// traceOver is trace, and runs over functions with that suffix.
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
	if !hasBreakpoints {
		t.Skip("no breakpoints on this machine")
	}
	return windows, err
}

// What is run over is not recorded, nor what it calls, and what is around it is.
func TestRun_Over(t *testing.T) {
	all, err := trace(t, "calls", 0)
	require.NoError(t, err)
	without, err := traceOver(t, "calls", "ptrace.triangle")
	require.NoError(t, err)
	require.Len(t, without, len(all))
	all = slices.DeleteFunc(all, preempted)
	require.NotEmpty(t, all)
	for i, w := range without {
		assert.Zero(t, count(w, "ptrace.triangle"), "window %d", i)
		assert.Equal(t, KnownLen, count(w, "ptrace.known"), "window %d", i)
		if !preempted(w) && !testenv.RaceEnabled { // the detector's calls in triangle are run over, too
			assert.Equal(t, len(all[0].Steps)-count(all[0], "ptrace.triangle"), len(w.Steps), "window %d", i)
		}
	}
}

func TestRun_OverWhatDoesNotReturn(t *testing.T) {
	_, err := traceOver(t, "no return", "ptrace.leave")
	assert.ErrorContains(t, err, "that was to return to")
}
