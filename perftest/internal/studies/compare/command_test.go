package compare

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func execute(args ...string) (out string, err error) {
	cmd := Command()
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
	return b.String(), err
}

func TestCommand_List(t *testing.T) {
	out, err := execute("--list")
	require.NoError(t, err)
	assert.Len(t, strings.Split(strings.TrimSpace(out), "\n"), len(Cases()))

	out, err = execute("--list", "--only", "^sm/put_pp/8/(short|ucp)")
	require.NoError(t, err)
	assert.Equal(t, "sm/put_pp/8/short         put_lat posix  ratio of ns ≤ 0.83\n"+
		"sm/put_pp/8/ucp           ucp_put_lat posix,cma,self  ratio of ns ≤ 1.00\n", out)
}

func TestCommand_Refuses(t *testing.T) {
	for args, want := range map[string]string{
		"--only (":             "missing closing",
		"--only nothing":       "--list",
		"--rounds 0":           "at least 1",
		"--near 0":             "positive",
		"--time 0s":            "positive",
		"--time 2m --limit 1m": "longer",
		"-o xml":               "unknown output format",
		"-c off":               "two different CPUs",
		"-c x":                 "not a number",
		"something":            "unknown command",
	} {
		_, err := execute(strings.Fields(args)...)
		assert.ErrorContains(t, err, want, args)
	}
}

func TestProgress_LinesWithoutATerminal(t *testing.T) {
	var b bytes.Buffer
	l := &lines{w: &b, plan: plan{Rounds: 7, Time: defaultTime}, total: 18}
	c := Cases()[0]
	l.begin(c)
	l.pair(c, []Pair{near(85.04, 50.5)})
	l.end(summarize(c, []Pair{near(85.04, 51.02), far(200, 100), moved(1, 2)}, nil))
	assert.Equal(t, `perftest: sm/am_lat/8/short, 1 of 18: 7 pairs of runs of 150ms
perftest: sm/am_lat/8/short, near: UCX 85.0 ns, gucx 51.0 ns, ratio 0.60, of the best runs 0.60, by 1 pairs, without 1 in which the CPUs were moved
perftest: sm/am_lat/8/short, far: UCX 200.0 ns, gucx 100.0 ns, ratio 0.50, of the best runs 0.50, by 1 pairs
`, b.String())
	b.Reset()
	l.end(summarize(c, nil, errors.New("no such layout")))
	assert.Equal(t, "perftest: sm/am_lat/8/short: failed: no such layout\n", b.String())
}

func TestProgress_OneLineOnATerminal(t *testing.T) {
	var b bytes.Buffer
	l := &line{w: &b, rounds: 7, total: 18}
	c := Cases()[0]
	l.begin(c)
	l.pair(c, []Pair{near(85.04, 50.5), moved(1, 1), near(85.04, 50.5)})
	l.end(nil)
	assert.Equal(t, clearLine+"1/18 sm/am_lat/8/short"+
		clearLine+"1/18 sm/am_lat/8/short: 2/7; UCX 85.0 ns, gucx 50.5, near"+clearLine, b.String())
}

func TestProgress_OfWhat(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	assert.Equal(t, silent{}, newListener(w, true, plan{}, 1))
	assert.IsType(t, &lines{}, newListener(w, false, plan{}, 1), "no terminal")
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer terminal.Close()
	for name, want := range map[string]listener{"xterm": &line{}, "dumb": &lines{}} {
		t.Setenv("TERM", name)
		assert.IsType(t, want, newListener(terminal, false, plan{}, 1), name)
	}
}
