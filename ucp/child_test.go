package ucp

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/uct/all"
)

// roleEnv makes this test binary a child process with a role. Its value is the name of the role and the arguments,
// separated by spaces.
const roleEnv = "GUCX_TEST_UCP_ROLE"

// roles are the roles of child processes. A role ends at the latest when its standard input is closed.
var roles = map[string]func(c *childSide) error{
	"chat":       chatRole,
	"idlepeers":  idlePeersRole,
	"idleecho":   idleEchoRole,
	"load":       loadRole,
	"rndv":       rndvRole,
	"visit":      visitRole,
	"storm":      stormRole,
	"dial":       dialRole,
	"oneport":    onePortRole,
	"refused":    refusedRole,
	"guest":      guestRole,
	"streamer":   streamerRole,
	"tagger":     taggerRole,
	"pest":       pestRole,
	"pesthost":   pestHostRole,
	"pestguest":  pestGuestRole,
	"poster":     posterRole,
	"tupler":     tuplerRole,
	"sleeper":    sleeperRole,
	"faulty":     faultyRole,
	"faultyhost": faultyHostRole,
}

// childSide is the child's side of its connection to the parent.
type childSide struct {
	args []string
	in   *bufio.Scanner
}

// printf sends a line to the parent.
func (c *childSide) printf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// nextLine waits for a line of the parent. It returns false if the parent has ended.
func (c *childSide) nextLine() bool { return c.in.Scan() }

// runRole executes the role of the environment. It returns false if there is none.
func runRole() bool {
	role := strings.Fields(os.Getenv(roleEnv))
	if len(role) == 0 {
		return false
	}
	c := &childSide{args: role[1:], in: bufio.NewScanner(os.Stdin)}
	if err := roles[role[0]](c); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role[0], err)
		os.Exit(1)
	}
	return true
}

// reach opens a worker over the transports of the first argument, with an EP to the worker whose address is the second
// argument.
func (c *childSide) reach() (*Worker, *EP, error) { return c.reachWith(Config{}) }

// reachWith is reach with a configuration.
func (c *childSide) reachWith(cfg Config) (*Worker, *EP, error) {
	ctx, err := openContextWith(cfg, c.args[0])
	if err != nil {
		return nil, nil, err
	}
	w, err := ctx.NewWorker(WorkerConfig{})
	if err != nil {
		return nil, nil, err
	}
	addr, err := hex.DecodeString(c.args[1])
	if err != nil {
		return nil, nil, err
	}
	ep, err := w.NewEP(addr, EPConfig{})
	return w, ep, err
}

// untilParentGoes calls f again and again until it fails or the parent has ended.
func (c *childSide) untilParentGoes(f func(context.Context) error) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		c.nextLine()
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

// child is a process with a role.
type child struct{ *testenv.Subprocess }

// startChild starts a process with a role. If the test has not waited for it, it is killed when the test ends.
func startChild(t testing.TB, role string, args ...any) *child {
	t.Helper()
	return startChildIn(t, "", role, args...)
}

// startChildIn is startChild in a network namespace; "" means that of this process.
func startChildIn(t testing.TB, namespace, role string, args ...any) *child {
	t.Helper()
	c := newChildIn(t, namespace, role, args...)
	t.Cleanup(func() { c.kill(t) })
	return c
}

// newChild is startChild without a cleanup: the test must end the process. It is for tests that start a thousand
// processes.
func newChild(t testing.TB, role string, args ...any) *child {
	t.Helper()
	return newChildIn(t, "", role, args...)
}

func newChildIn(t testing.TB, namespace, role string, args ...any) *child {
	t.Helper()
	cmd := testenv.Self(roleEnv + "=" + role + " " + strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
	if namespace != "" {
		exe, err := os.Executable()
		require.NoError(t, err)
		inside := exec.Command("ip", "netns", "exec", namespace, exe)
		inside.Env, inside.Stderr = cmd.Env, cmd.Stderr
		cmd = inside
	}
	return &child{testenv.LaunchSubprocess(t, cmd)}
}

// line returns the next line of the child.
func (c *child) line(t testing.TB) string {
	t.Helper()
	return c.Line(t)
}

// send sends a line to the child.
func (c *child) send(t testing.TB, line string) {
	t.Helper()
	c.Tell(t, "%s", line)
}

// requireExit waits until the child has exited with status 0.
func (c *child) requireExit(t testing.TB) {
	t.Helper()
	c.End(t)
}

// kill kills the child with SIGKILL and waits for it. It does nothing if the child has ended.
func (c *child) kill(t testing.TB) {
	t.Helper()
	c.Kill(t)
}

// openContext opens the transports that tls selects.
func openContext(tls string) (*Context, error) { return openContextWith(Config{}, tls) }

// openContextWith is openContext with a configuration.
func openContextWith(cfg Config, tls string) (*Context, error) {
	if err := cfg.TLS.UnmarshalText([]byte(tls)); err != nil {
		return nil, err
	}
	return NewContext(cfg, tlsets.Components(all.Config{})...)
}

// remoteMem is the address of a worker and the key of its memory, for EPs of other processes.
type remoteMem struct{ addr, key []byte }

// String returns one word, which parseRemote parses.
func (r remoteMem) String() string {
	return hex.EncodeToString(r.addr) + "," + hex.EncodeToString(r.key)
}

func parseRemote(s string) (r remoteMem, err error) {
	addr, key, _ := strings.Cut(s, ",")
	r.addr, err = hex.DecodeString(addr)
	if err != nil {
		return r, err
	}
	r.key, err = hex.DecodeString(key)
	return r, err
}

// dial makes an EP of w and a key.
func (r remoteMem) dial(w *Worker) (*EP, *RKey, error) {
	ep, err := w.NewEP(r.addr, EPConfig{})
	if err != nil {
		return nil, nil, err
	}
	key, err := ep.Unpack(r.key)
	return ep, key, err
}
