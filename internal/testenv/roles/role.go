// Package roles starts the test binary as a child process with a role: a function that a test registers.
package roles

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
)

// Env is the environment variable that makes a test binary a child process with a role. Its value is the name of the role and the arguments,
// separated by spaces.
const Env = "GUCX_TEST_UCP_ROLE"

// byName has the registered roles. A role ends at the latest when its standard input is closed.
var byName = map[string]func(c *Side) error{}

// Register makes a role of the test binary available, before TestMain.
func Register(name string, role func(c *Side) error) {
	if byName[name] != nil {
		panic("two roles named " + name)
	}
	byName[name] = role
}

// Side is the child's side of its connection to the parent.
type Side struct {
	Args []string
	In   *bufio.Scanner // lines of the parent
}

// Printf sends a line to the parent.
func (c *Side) Printf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// NextLine waits for a line of the parent. It returns false if the parent has ended.
func (c *Side) NextLine() bool { return c.In.Scan() }

// Run executes the role of the environment. It returns false if there is none.
func Run() bool {
	role := strings.Fields(os.Getenv(Env))
	if len(role) == 0 {
		return false
	}
	c := &Side{Args: role[1:], In: bufio.NewScanner(os.Stdin)}
	if err := byName[role[0]](c); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role[0], err)
		os.Exit(1)
	}
	return true
}

// UntilParentEnds calls f again and again until it fails or the parent has ended.
func (c *Side) UntilParentEnds(f func(context.Context) error) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		c.NextLine()
		stop()
	}()
	for {
		if err := f(ctx); errors.Is(err, context.Canceled) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Child is a process with a role.
type Child struct{ *testenv.Subprocess }

// Start starts a process with a role. If the test has not waited for it, it is killed when the test ends.
func Start(t testing.TB, role string, args ...any) *Child {
	t.Helper()
	return StartIn(t, "", role, args...)
}

// StartIn is Start in a network namespace; "" means that of this process.
func StartIn(t testing.TB, namespace, role string, args ...any) *Child {
	t.Helper()
	c := newIn(t, namespace, role, args...)
	t.Cleanup(func() { c.Kill(t) })
	return c
}

// New is Start without a cleanup: the test must end the process. It is for tests that start a thousand
// processes.
func New(t testing.TB, role string, args ...any) *Child {
	t.Helper()
	return newIn(t, "", role, args...)
}

func newIn(t testing.TB, namespace, role string, args ...any) *Child {
	t.Helper()
	cmd := testenv.Self(Env + "=" + role + " " + strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	if namespace != "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		inside := exec.Command("ip", "netns", "exec", namespace, exe)
		inside.Env, inside.Stderr = cmd.Env, cmd.Stderr
		cmd = inside
	}
	return &Child{testenv.LaunchSubprocess(t, cmd)}
}

// Send sends a line to the child.
func (c *Child) Send(t testing.TB, line string) {
	t.Helper()
	c.Tell(t, "%s", line)
}
