package ucpnet

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

// roleEnv makes this test binary a child process with a role: its name, and its arguments, separated by spaces.
const roleEnv = "GUCX_TEST_UCPNET_ROLE"

// roles are the roles of child processes. A role ends at the latest when its standard input ends.
var roles = map[string]func(args []string, in *bufio.Scanner) error{
	"peer":  peerRole,
	"serve": serveRole,
}

func TestMain(m *testing.M) {
	role := strings.Fields(os.Getenv(roleEnv))
	if len(role) == 0 {
		testenv.Main(m)
	}
	if err := roles[role[0]](role[1:], bufio.NewScanner(os.Stdin)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role[0], err)
		os.Exit(1)
	}
}

// startChild starts a child process, with files from descriptor 3. It is killed when the test ends.
func startChild(t testing.TB, files []*os.File, role ...string) *testenv.Subprocess {
	t.Helper()
	cmd := testenv.Self(roleEnv + "=" + strings.Join(role, " "))
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return testenv.StartSubprocess(t, cmd)
}

// roleWorker returns the worker of a child process.
func roleWorker(tls string) (*ucp.SharedWorker, error) {
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow(tls)}, all.Components()...)
	if err != nil {
		return nil, err
	}
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return nil, err
	}
	return w.Share(), nil
}

// peerRole dials a listener, writes a byte and waits. Its arguments are transports, network and address.
func peerRole(args []string, in *bufio.Scanner) error {
	w, err := roleWorker(args[0])
	if err != nil {
		return err
	}
	c, err := Dial(context.Background(), w, args[1], args[2])
	if err != nil {
		return err
	}
	if err := writeOne(c); err != nil {
		return err
	}
	in.Scan()
	return c.Close()
}
