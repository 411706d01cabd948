package compare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// roleVar makes the test binary run as a child.
const roleVar = "COMPARE_TEST_ROLE"

// Roles of a child. The stand-ins of ucx_perftest take its arguments.
const (
	roleUCX    = "ucx"    // prints figures; a server waits for its client
	roleServer = "server" // as ucx, but the server fails
	roleClient = "client" // as ucx, but the client fails
	roleHang   = "hang"   // prints that it runs, and then hangs
	roleSpin   = "spin"   // runs compare-ucx spin
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVar); role {
	case "":
	case roleSpin:
		cmd := Command()
		cmd.SetArgs(os.Args[1:])
		if cmd.Execute() != nil {
			os.Exit(1)
		}
	case roleHang:
		fmt.Fprintln(os.Stderr, "there")
		for {
			_ = unix.Pause() // without cgo the runtime reports a wait without events as a deadlock
		}
	default:
		os.Exit(standIn(role, os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

const standInFigures = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n" +
	"1000,0.010,0.010,0.010,0,0,100000000,100000000\n"

// standIn replaces ucx_perftest, without a measurement.
func standIn(role string, args []string) int {
	client := args[0] == "127.0.0.1"
	if role == roleServer && !client || role == roleClient && client {
		fmt.Fprintln(os.Stderr, "UCX ERROR\nfor the test")
		return 7
	}
	i := slices.Index(args, "-p")
	switch {
	case i < 0: // loopback
	case client:
		c, err := net.Dial("tcp", "127.0.0.1:"+args[i+1])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer c.Close()
	default:
		l, err := net.Listen("tcp", ":"+args[i+1])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}
	fmt.Print(standInFigures)
	return 0
}

// newUCX returns a ucx that runs the test binary in a role instead of ucx_perftest.
func newUCX(t *testing.T, role string, limit time.Duration) *ucx {
	t.Setenv(roleVar, role)
	self, err := os.Executable()
	require.NoError(t, err)
	return &ucx{path: self, client: 1, server: 0, limit: limit}
}

func TestUCX_Args(t *testing.T) {
	c := Case{Layout: "zcopy", Size: 65536, UCX: cma.on("put_bw")}
	assert.Equal(t, "-t put_bw -s 65536 -n 5000 -w 501 -f -v -x cma -d memory -D zcopy",
		strings.Join((&ucx{}).args(c, 5000), " "))
	c.UCX = c.UCX.as("short")
	assert.Contains(t, (&ucx{}).args(c, 5000), "short")
	assert.Contains(t, (&ucx{}).args(c, 1<<20), "10000", "limit of warm-up operations")
	assert.Empty(t, c.env())
}

func TestUCX_UCPIsRestrictedByTheEnvironment(t *testing.T) {
	c := Case{Layout: LayoutUCP, Size: 8, UCX: ucpTCP.on("tag_lat")}
	u := newUCX(t, roleUCX, time.Minute)
	assert.Equal(t, "-t tag_lat -s 8 -n 5000 -w 501 -f -v", strings.Join(u.args(c, 5000), " "))
	assert.Subset(t, u.process(t.Context(), c, nil).cmd.Env, []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"})
	c.UCX = ucpShm.on("tag_lat")
	assert.Equal(t, []string{"UCX_TLS=posix,cma,self"}, c.env())
}

func TestUCX_RunsServerAndClient(t *testing.T) {
	ns, err := newUCX(t, roleUCX, time.Minute).run(t.Context(), Case{UCX: posix.on("am_lat")}, 1000)
	require.NoError(t, err)
	assert.InDelta(t, 10, ns, 1e-9)
}

func TestUCX_LoopbackIsOneProcess(t *testing.T) {
	ns, err := newUCX(t, roleUCX, time.Minute).run(t.Context(), Case{UCX: self.on("am_lat")}, 1000)
	require.NoError(t, err)
	assert.InDelta(t, 10, ns, 1e-9)
}

func TestUCX_ErrorContainsProgramOutput(t *testing.T) {
	for _, role := range []string{roleServer, roleClient} {
		_, err := newUCX(t, role, time.Minute).run(t.Context(), Case{UCX: posix.on("am_lat")}, 1000)
		require.ErrorContains(t, err, "exit status 7: UCX ERROR for the test", role)
	}
}

func TestUCX_Missing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findUCX(1, 0, time.Second)
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "ucx-utils")
	assert.Equal(t, "unknown", ucxVersion(t.Context()))
}

func TestUCX_TimeLimit(t *testing.T) {
	for _, peer := range []Peer{posix, self} {
		_, err := newUCX(t, roleHang, time.Millisecond).run(t.Context(), Case{UCX: peer.on("am_lat")}, 1000)
		var slow *slowError
		require.ErrorAs(t, err, &slow)
	}
}

// TestProcess_EndsWithContext waits until the child prints that it runs.
func TestProcess_EndsWithContext(t *testing.T) {
	t.Setenv(roleVar, roleHang)
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	p := newProcess(ctx, self)
	p.cmd.Stderr = nil // the test reads it
	said, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "there\n", line)
	why := errors.New("interrupted")
	cancel(why)
	require.ErrorIs(t, p.wait(ctx), why)
	assert.ErrorIs(t, unix.Kill(p.cmd.Process.Pid, 0), unix.ESRCH)
}

func TestVersionLine(t *testing.T) {
	for in, want := range map[string]string{
		"# Version 1.13.1\n# Git branch '<unknown>', revision 0000000": "1.13.1",
		"# Library version: 1.23.0\n# Library path: /usr/lib":          "1.23.0",
	} {
		m := versionLine.FindStringSubmatch(in)
		require.NotNil(t, m, in)
		assert.Equal(t, want, m[1])
	}
}

// TestUCX_Real runs ucx_perftest if it is installed.
func TestUCX_Real(t *testing.T) {
	if _, err := exec.LookPath(ucxPerftest); err != nil {
		t.Skip(ErrMissing)
	}
	u, err := findUCX(0, 0, time.Minute)
	require.NoError(t, err)
	assert.NotEqual(t, "unknown", ucxVersion(t.Context()))
	ns, err := u.run(t.Context(), Case{Layout: "short", Size: 8, UCX: self.on("am_lat")}, 1000)
	require.NoError(t, err)
	assert.Positive(t, ns)
	_, err = u.run(t.Context(), Case{Layout: "short", Size: mib, UCX: self.on("am_lat")}, 1000)
	assert.ErrorContains(t, err, "larger than max")
}
