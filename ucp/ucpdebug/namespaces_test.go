package ucpdebug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/sm"
)

// dialerEnv is the environment variable by which TestMain knows that it is the dialer in namespaces of its own. Its
// value is the file of the socket to dial.
const dialerEnv, socketDirEnv = "UCPDEBUG_TEST_DIALER", "UCPDEBUG_TEST_SOCKET_DIR"

func TestMain(m *testing.M) {
	if socket := os.Getenv(dialerEnv); socket != "" {
		_ = json.NewEncoder(os.Stdout).Encode(dialAsTold(socket, os.Getenv(socketDirEnv)))
		return
	}
	testenv.Main(m)
}

// found is what the dialer has found.
type found struct {
	Err         string
	Unreachable bool
	Info        *ucp.EPInfo
}

// dialAsTold dials, gets registered memory of the listener, and describes the EP.
func dialAsTold(socket, dir string) (f found) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fail := func(err error) found { return found{Err: err.Error(), Unreachable: errors.Is(err, ucs.ErrUnreachable)} }
	c, err := smOnly(dir)
	if err != nil {
		return fail(err)
	}
	w, err := c.NewWorker(ucp.WorkerConfig{})
	if err != nil {
		return fail(err)
	}
	p, err := w.Dial(ctx, "unix", socket, ucp.DialConfig{})
	if err != nil {
		return fail(err)
	}
	got, key := make([]byte, len(secret)), p.Keys["memory"]
	if err := p.EP.GetWait(ctx, got, key.Addr(), key, nil); err != nil {
		return fail(err)
	}
	if string(got) != secret {
		return fail(fmt.Errorf("got %q", got))
	}
	f.Info = p.EP.Info()
	return f
}

const secret = "what the listener has registered"

// smOnly is a context with sm, whose sockets are in dir; abstract ones if that is empty.
func smOnly(dir string) (*ucp.Context, error) {
	return ucp.NewContext(ucp.Config{TLS: config.Allow("sm")}, all.Config{SM: sm.Config{SocketDir: dir}}.Components()...)
}

// TestNamespaces: what sm can do between containers, by the namespaces that they do not share. docs/operations.md has
// the same table.
func TestNamespaces(t *testing.T) {
	const attach, helps = "registered memory: cross-memory attach", "registered memory: the peer helps in its progress"
	for _, tc := range []struct {
		name  string
		flags uintptr
		dir   bool
		lane  string // what the lane says; empty: there is none
	}{
		{"none", 0, false, attach},
		{"network", unix.CLONE_NEWNET, false, ""},
		{"network, with a socket directory", unix.CLONE_NEWNET, true, attach},
		{"user", unix.CLONE_NEWUSER, false, helps},
		{"pid", unix.CLONE_NEWPID, false, helps},
		{"mount, ipc and uts", unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, false, attach},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &syscall.SysProcAttr{Cloneflags: tc.flags, Pdeathsig: syscall.SIGKILL}
			if tc.flags == unix.CLONE_NEWUSER {
				a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
				a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
			}
			testenv.NeedProcAttr(t, a, "needs the right to make namespaces")
			sockets := testenv.SocketDir(t)
			dir := ""
			if tc.dir {
				dir = sockets
			}
			f := dialed(t, sockets+"/listener", dir, a)
			if tc.lane == "" {
				assert.True(t, f.Unreachable, "%+v", f)
				return
			}
			require.Empty(t, f.Err)
			require.NotEmpty(t, f.Info.Lanes)
			assert.Equal(t, "sm", f.Info.Lanes[0].Transport)
			assert.Contains(t, f.Info.Lanes[0].System, tc.lane)
		})
	}
}

// dialed listens while a dialer runs that is started with a, and returns what it has found.
func dialed(t *testing.T, socket, dir string, a *syscall.SysProcAttr) (f found) {
	c, err := smOnly(dir)
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	mem, err := c.MemMap([]byte(secret))
	require.NoError(t, err)
	defer func() { assert.NoError(t, mem.Close()) }()
	_, err = w.Listen(t.Context(), "unix", socket, ucp.ListenConfig{Keys: map[string]*ucp.Mem{"memory": mem}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Serve(context.Background()) })
	defer wg.Wait()
	defer func() { assert.NoError(t, w.Close()) }()
	cmd := testenv.Self(dialerEnv+"="+socket, socketDirEnv+"="+dir)
	cmd.SysProcAttr = a
	p := testenv.StartSubprocess(t, cmd)
	require.NoError(t, json.Unmarshal([]byte(p.Line(t)), &f))
	return f
}
