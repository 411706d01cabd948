package sm

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
)

// roleEnv makes the test binary a second process instead: one of the child roles.
const roleEnv = "GUCX_SM_TEST_ROLE"

// coreEnv pins that process to a CPU.
const coreEnv = "GUCX_SM_TEST_CORE"

// dirEnv is that process's SocketDir.
const dirEnv = "GUCX_SM_TEST_DIR"

// exchangedInfo is what two processes exchange to connect.
type exchangedInfo struct {
	Device, Iface []byte
	Raddr         uint64
	Key           []byte
}

// station is an open sm with memory.
type station struct {
	md    uct.MD
	iface *iface
	mem   uct.Mem
}

func openStation(t require.TestingT, cfg Config) *station {
	if cfg.ArenaSize == 0 {
		cfg.ArenaSize = testArena
	}
	md, err := New(cfg).OpenMD(Name)
	require.NoError(t, err)
	s := &station{md: md}
	s.iface, s.mem = openIface(t, md, cfg), nil
	s.mem, err = md.Ext().Alloc.Alloc(4<<20, uct.AccessAll)
	require.NoError(t, err)
	return s
}

func openIface(t require.TestingT, md uct.MD, cfg Config) *iface {
	it, err := md.OpenIface(uct.IfaceParams{Transport: Name, Device: DeviceName, Config: cfg})
	require.NoError(t, err)
	return it.(*iface)
}

func (s *station) close(t require.TestingT) {
	require.NoError(t, s.iface.Close())
	require.NoError(t, s.mem.Close())
	require.NoError(t, s.md.Close())
}

func (s *station) exchangedInfo() exchangedInfo {
	key, _ := s.mem.PackRKey(nil)
	return exchangedInfo{s.iface.DeviceAddr(nil), s.iface.IfaceAddr(nil), s.mem.Addr(), key}
}

// connect creates an EP to m and waits until it is connected.
func (s *station) connect(t require.TestingT, m exchangedInfo) *endpoint {
	ep, err := s.iface.NewEP(uct.EPParams{DeviceAddr: m.Device, IfaceAddr: m.Iface})
	require.NoError(t, err)
	e := ep.(*endpoint)
	for e.state != epUp {
		require.NotEqual(t, epFailed, e.state, "%v", e.reason)
		if e.state == epIdle {
			_ = e.postError()
		}
		s.iface.Progress()
		runtime.Gosched()
	}
	return e
}

func (s *station) key(t require.TestingT, m exchangedInfo) uct.RKey {
	k, err := s.md.Ext().Keys.UnpackRKey(m.Key)
	require.NoError(t, err)
	return k
}

// Roles.
const (
	roleEcho  = "echo"  // replies to messages and puts until its input ends
	roleStorm = "storm" // sends until it is killed
	roleVisit = "visit" // visits the peer's memory until it reads a line
	roleWrite = "write" // puts to the given memory until that fails
)

// wire exchanges exchangedInfo: one line of base64 of JSON in each direction.
func writeInfo(w io.Writer, m exchangedInfo) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, base64.StdEncoding.EncodeToString(b))
	return err
}

func readInfo(r *bufio.Reader) (m exchangedInfo, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return m, err
	}
	b, err := base64.StdEncoding.DecodeString(line[:len(line)-1])
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// failNow ends a child process on a failed requirement.
type failNow struct{}

func (failNow) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (failNow) FailNow()                          { os.Exit(3) }

// runChild is main of a second process.
func runChild(role string) {
	t := failNow{}
	s := openStation(t, Config{SocketDir: os.Getenv(dirEnv)})
	require.NoError(t, writeInfo(os.Stdout, s.exchangedInfo()))
	in := bufio.NewReader(os.Stdin)
	m, err := readInfo(in)
	require.NoError(t, err)
	switch role {
	case roleEcho:
		serveEcho(s, m, in)
	case roleStorm:
		storm(s, m)
	case roleCramped:
		cramped(s, m, in)
	case roleVisit:
		visitPeer(s, m, in)
	case roleWrite:
		writePeer(s, m, in)
	case roleBusy:
		workBusy(s, m, in)
	case roleDenied:
		workDenied(s, m)
	case roleMesh:
		workMesh(s, in)
	}
	s.close(t)
}

// child is a running second process.
type child struct {
	*testenv.Subprocess
	exchangedInfo
}

// start runs a role and exchanges exchangedInfo with it.
func start(t testing.TB, role string, s *station, core string) *child {
	t.Helper()
	return run(t, command(role, core), s)
}

func command(role, core string) *exec.Cmd { return testenv.Self(roleEnv+"="+role, coreEnv+"="+core) }

// run is start for a command.
func run(t testing.TB, cmd *exec.Cmd, s *station) *child {
	t.Helper()
	c := &child{Subprocess: testenv.StartSubprocess(t, cmd)}
	var err error
	c.exchangedInfo, err = readInfo(c.Out)
	require.NoError(t, err)
	require.NoError(t, writeInfo(c.In, s.exchangedInfo()))
	c.Line(t) // it is connected
	return c
}

// pinChild binds the thread of a second process, when its other threads exist.
func pinChild() {
	runtime.LockOSThread()
	if core := os.Getenv(coreEnv); core != "" {
		pin(int(core[0] - '0'))
	}
}

func pin(core int) {
	var set unix.CPUSet
	set.Set(core)
	_ = unix.SchedSetaffinity(0, &set) // a machine without that CPU runs unpinned
}
