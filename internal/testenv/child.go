package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Child is a run of the test binary that works when it is told to.
type Child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartChild starts the test binary with env set in its environment; TestMain there calls
// ServeChild. The child has worked once when StartChild returns, and ends with the test.
func StartChild(t testing.TB, env string) *Child {
	t.Helper()
	c := &Child{Cmd: exec.Command(os.Args[0])}
	c.Env = append(os.Environ(), env+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := c.StdoutPipe()
	childNeeds(t, err)
	c.out = bufio.NewReader(out)
	c.in, err = c.StdinPipe()
	childNeeds(t, err)
	childNeeds(t, c.Start())
	t.Cleanup(func() {
		if err := errors.Join(c.in.Close(), c.Wait()); err != nil {
			t.Errorf("child: %v", err)
		}
	})
	c.Work(t)
	return c
}

// Work has the child work, and waits for it.
func (c *Child) Work(t testing.TB) {
	t.Helper()
	_, err := fmt.Fprintln(c.in)
	childNeeds(t, err)
	_, err = c.out.ReadString('\n')
	childNeeds(t, err)
}

func childNeeds(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("child: %v", err)
	}
}

// ServeChild works once for each line of standard input, and answers with a line by one
// write, until the input ends. It reports false, at once, in a process that StartChild
// has not started with env.
func ServeChild(env string, work func()) bool {
	if os.Getenv(env) == "" {
		return false
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		work()
		fmt.Println("done")
	}
	return true
}
