package testenv

import (
	"bufio"
	"fmt"
	"os"
	"testing"
)

// Child is a process of the test binary that works on request.
type Child struct{ *Subprocess }

// StartChild starts the test binary with env set in its environment. TestMain there calls ServeChild. The child has
// worked once when StartChild returns, and ends with the test.
func StartChild(t testing.TB, env string) *Child {
	t.Helper()
	c := &Child{LaunchSubprocess(t, Self(env+"=1"))}
	t.Cleanup(func() { c.End(t) })
	c.Work(t)
	return c
}

// Work makes the child work, and waits for it.
func (c *Child) Work(t testing.TB) {
	t.Helper()
	c.Tell(t, "")
	c.Line(t)
}

// ServeChild works once for each line of standard input, and prints a line with one write, until the input ends. In a
// process that StartChild has not started with env it returns false at once.
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
