package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gucx/gucx/internal/testenv"
)

// asSide makes the test binary one side of a measurement.
const asSide = "GUCX_INTEROP_SIDE"

func TestMain(m *testing.M) {
	if os.Getenv(asSide) != "" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, "1.0", false); err != nil {
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// gucx returns the program with gucx.
func gucx(t *testing.T) Program {
	self, err := os.Executable()
	require.NoError(t, err)
	return Program{Name: "gucx", Command: []string{self}, Env: []string{asSide + "=1"}}
}

// small returns a short study.
func small(sizes ...int) Study {
	return Study{Tests: Tests(), Sizes: sizes, Iterations: 2, Warmup: 1, Rounds: 1, Window: 2}
}

// TestStudy runs the protocol with gucx instead of UCX.
func TestStudy(t *testing.T) {
	s := small(20000)
	require.NoError(t, s.Check())
	p, steps := gucx(t), 0
	rows, err := s.Run(t.Context(), Program{Name: "other", Command: p.Command, Env: p.Env}, p, func(string, int) { steps++ })
	require.NoError(t, err)
	assert.Equal(t, s.Turns(), steps)
	require.Len(t, rows, len(Tests())*4)
	for i, pair := range []string{"other-other", "gucx-other", "other-gucx", "gucx-gucx"} {
		assert.Equal(t, pair, rows[i].Pair)
	}
	for _, r := range rows {
		assert.Positive(t, r.NS, "%+v", r)
		assert.Positive(t, r.Ratio, "%+v", r)
		assert.LessOrEqual(t, r.Least, r.Ratio)
		assert.GreaterOrEqual(t, r.Most, r.Ratio)
	}
	assert.Equal(t, 1.0, rows[0].Most, "the reference of the other rows")

	var out bytes.Buffer
	require.NoError(t, Sheet(s, nil, rows).Write(&out, "json"))
	var head Study
	require.NoError(t, json.NewDecoder(&out).Decode(&head))
	assert.Equal(t, s, head)
}

// TestStudy_UCX uses the installed UCX.
func TestStudy_UCX(t *testing.T) {
	testenv.SkipShort(t, "builds and runs programs with UCX")
	binary, err := Build(t.Context(), t.TempDir())
	if err != nil {
		require.ErrorIs(t, err, ErrNoUCX)
		t.Skip(err)
	}
	ucx := UCX(binary)
	version, err := ucx.Version(t.Context())
	require.NoError(t, err)
	assert.Regexp(t, `^UCX 1\.\d+`, version)
	if Narrow(version) {
		t.Skipf("%s has another form of addresses of loopback than the program of this test", version)
	}
	s := small(8, 1<<20)
	rows, err := s.Run(t.Context(), ucx, gucx(t), func(string, int) {})
	require.NoError(t, err)
	assert.Len(t, rows, len(Tests())*2*4)
}

func TestStudy_InvalidProgram(t *testing.T) {
	s, p := small(8), gucx(t)
	ignore := func(string, int) {}
	_, err := s.Run(t.Context(), Program{Name: "none", Command: []string{"/does/not/exist"}}, p, ignore)
	assert.ErrorContains(t, err, "start none")
	_, err = s.Run(t.Context(), Program{Name: "none", Command: []string{"true"}}, p, ignore)
	assert.ErrorIs(t, err, errExited)
	_, err = s.Run(t.Context(), Program{Name: "none", Command: []string{"echo", "hello"}}, p, ignore)
	assert.ErrorContains(t, err, "none: hello")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Run(ctx, p, p, ignore)
	assert.ErrorIs(t, err, context.Canceled)
}

// If a side exits during a run, the run ends.
func TestPair_SideExits(t *testing.T) {
	defer lockThread()()
	s, p := small(8), gucx(t)
	both, err := newPair(t.Context(), p, p, &s)
	require.NoError(t, err)
	require.NoError(t, both.target.cmd.Process.Kill())
	_, err = both.run(t.Context(), Tests()[0], 8, 0, 1, 1)
	assert.Error(t, err)
	assert.NoError(t, both.close())
}

// The data that arrives is compared with the data that was sent.
func TestPair_DetectsWrongData(t *testing.T) {
	s := &side{in: make([]byte, 8), out: make([]byte, 8), window: make([]byte, 8)}
	for _, test := range Tests() {
		require.ErrorIs(t, s.check(test, 8), ErrData, test.Name)
	}
	fill(s.in)
	fill(s.window)
	for _, test := range Tests() {
		require.NoError(t, s.check(test, 8), test.Name)
	}
}

// TestProcess_Failure: only the reply for wrong data is ErrData.
func TestProcess_Failure(t *testing.T) {
	s := &process{name: "one"}
	assert.ErrorIs(t, s.failure("failed: wrong data"), ErrData)
	for _, line := range []string{"failed: unknown command check", "Segmentation fault"} {
		assert.NotErrorIs(t, s.failure(line), ErrData)
		assert.ErrorContains(t, s.failure(line), line)
	}
}

// A side replies to an invalid command with the reason, and exits.
func TestServe_RejectsInvalidCommands(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "ok gucx 7\n",
		"address":                        "ok 01", // of version 2
		"dance":                          "failed: ",
		"connect 1":                      "failed: ",
		"connect 00":                     "failed: ",
		"memory x 1":                     "failed: ",
		"memory 1 x":                     "failed: ",
		"prepare no_lat 8":               "failed: no_lat does not run with UCX",
		"prepare tag_lat 8":              "failed: ",
		"prepare tag_lat x":              "failed: ",
		"memory 8 1\nprepare tag_lat 8":  "ok\n",
		"memory 8 1\ncheck tag_lat 8":    "failed: wrong data",
		"memory 8 1\nserve tag_bw 8 1 2": "failed: ",
		"memory 8 1\nskip tag_lat 8":     "failed: ",
		"memory 8 1\nkey 1 0":            "failed: ",
		"memory 8 1\nkey x 00":           "failed: ",
	} {
		var out bytes.Buffer
		err := Serve(t.Context(), strings.NewReader(in), &out, "7", false)
		assert.Equal(t, strings.HasPrefix(want, "failed"), err != nil, "%s: %v", in, err)
		assert.Contains(t, out.String(), want, in)
	}
}

func TestStudy_Check(t *testing.T) {
	for name, change := range map[string]func(*Study){
		"no tests":   func(s *Study) { s.Tests = nil },
		"no sizes":   func(s *Study) { s.Sizes = nil },
		"empty":      func(s *Study) { s.Sizes = []int{0} },
		"too large":  func(s *Study) { s.Sizes = []int{MaxSize + 1} },
		"iterations": func(s *Study) { s.Iterations = 0 },
		"window":     func(s *Study) { s.Window = MaxWindow + 1 },
		"rounds":     func(s *Study) { s.Rounds = 0 },
	} {
		s := small(8)
		change(&s)
		assert.ErrorIs(t, s.Check(), ErrStudy, name)
	}
}

func TestNarrow(t *testing.T) {
	for version, want := range map[string]bool{"UCX 1.13.1": false, "UCX 1.18.1": false, "UCX 1.19.0": true, "UCX 1.90.0": false, "gucx 1.0": false} {
		assert.Equal(t, want, Narrow(version), version)
	}
}

// Without a compiler the build fails with that reason.
func TestBuild_WithoutACompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Build(t.Context(), t.TempDir())
	assert.ErrorIs(t, err, ErrNoUCX)
	assert.ErrorContains(t, err, "gcc is not installed")
}

func TestRow(t *testing.T) {
	r := newRow(Tests()[0], 1<<20, "a-b", []float64{1e6, 2e6, 3e6}, []float64{1e6, 1e6, 1e6})
	assert.Equal(t, Row{Test: tagLat, Size: 1 << 20, Pair: "a-b", NS: 2e6, Rate: 500, MiB: 500, Ratio: 2, Least: 1, Most: 3}, r)
	assert.Equal(t, 1, count(100, 1<<20))
	assert.Equal(t, 100, count(100, smallSize))
	assert.Equal(t, 50, count(100, 2*smallSize))
}
