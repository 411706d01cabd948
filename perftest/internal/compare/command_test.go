package compare

import (
	"bytes"
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

	out, err = execute("--list", "--only", "^sm/put_pp")
	require.NoError(t, err)
	assert.Equal(t, "sm/put_pp/8/short         put_lat posix  ratio of ns ≤ 0.83\n", out)
}

func TestCommand_Refuses(t *testing.T) {
	for args, want := range map[string]string{
		"--only (":             "missing closing",
		"--only nothing":       "--list",
		"--rounds 0":           "at least 1",
		"--time 0s":            "positive",
		"--time 2m --limit 1m": "longer",
		"-o xml":               "unknown output format",
		"-c off":               "two different processors",
		"-c x":                 "not a number",
		"something":            "unknown command",
	} {
		_, err := execute(strings.Fields(args)...)
		assert.ErrorContains(t, err, want, args)
	}
}

func TestLine(t *testing.T) {
	var b bytes.Buffer
	l := &line{w: &b, rounds: 7}
	l.show(Cases()[0], 2, Pair{85.04, 50.5, 55})
	l.clear()
	assert.Equal(t, clearLine+"sm/am_lat/8/short: 2 of 7; ucx 85.0 ns, gucx 50.5 ns, probe 55 ns"+clearLine, b.String())

	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	silent := newLine(w, false, 7) // no terminal
	silent.show(Cases()[0], 2, Pair{})
	silent.clear()
	assert.Nil(t, silent.w)
}
