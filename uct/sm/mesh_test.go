package sm

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// roleMesh is a process with many ifaces, each of which connects to each of the peer's.
const roleMesh = "mesh"

// meshEnv is how many ifaces each of the two processes has.
const meshEnv = "GUCX_SM_TEST_MESH"

// mesh is the ifaces of a process, and their EPs to all of the peer's.
type mesh struct {
	ifaces []*iface
	eps    []*endpoint
	got    int // messages
}

// openMesh opens the ifaces, with little memory for each link.
func openMesh(t require.TestingT, s *station, ifaces int) *mesh {
	m := &mesh{}
	for range ifaces {
		it := openIface(t, s.md, Config{FIFOSize: 2, Segs: 1, ConnectTimeout: watchdog})
		require.NoError(t, it.SetAMHandler(idSink, uct.AMHandlerFunc(func([]byte, uct.Desc) bool { m.got++; return false })))
		m.ifaces = append(m.ifaces, it)
	}
	return m
}

func (m *mesh) progress() {
	for _, it := range m.ifaces {
		it.Progress()
	}
	runtime.Gosched()
}

// open opens an EP from each iface to each of the peers.
func (m *mesh) open(t require.TestingT, peers []exchangedInfo) {
	for _, it := range m.ifaces {
		for _, p := range peers {
			ep, err := it.NewEP(uct.EPParams{DeviceAddr: p.Device, IfaceAddr: p.Iface})
			require.NoError(t, err)
			m.eps = append(m.eps, ep.(*endpoint))
		}
	}
}

// connect makes an EP from each iface to each of the peers, and sends a message by each.
func (m *mesh) connect(t require.TestingT, peers []exchangedInfo) {
	m.open(t, peers)
	for _, e := range m.eps {
		for err := e.AMShort(idSink, 0, nil); err != nil; err = e.AMShort(idSink, 0, nil) {
			require.ErrorIs(t, err, uct.ErrNoResource)
			for _, x := range m.eps {
				if x.state == epIdle {
					_ = x.postError() // all dial at once
				}
			}
			m.progress()
		}
	}
}

func (m *mesh) close(t require.TestingT) {
	for _, it := range m.ifaces {
		require.NoError(t, it.Close())
	}
}

// workMesh is the process with role mesh.
func workMesh(s *station, in *bufio.Reader) {
	t := failNow{}
	n, err := strconv.Atoi(os.Getenv(meshEnv))
	require.NoError(t, err)
	m := openMesh(t, s, n)
	fmt.Println("open")
	var peers []exchangedInfo
	for _, it := range m.ifaces {
		require.NoError(t, writeInfo(os.Stdout, exchangedInfo{Device: it.DeviceAddr(nil), Iface: it.IfaceAddr(nil)}))
		p, err := readInfo(in)
		require.NoError(t, err)
		peers = append(peers, p)
	}
	over := make(chan struct{})
	go func() {
		_, _ = in.ReadByte() // the end of the input
		close(over)
	}()
	m.connect(t, peers)
	for said := false; ; m.progress() {
		if m.got == len(m.eps) && !said {
			said = true
			fmt.Println("connected")
		}
		select {
		case <-over:
			m.close(t)
			return
		default:
		}
	}
}

// sockets is how many this process has.
func sockets(t require.TestingT) (n int) {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestMesh: all links between two processes with many ifaces each, in both directions, have few sockets. One iface closes,
// and the others do not notice; the process is killed, and all do.
func TestMesh(t *testing.T) {
	n := 12
	if testenv.Sweep() {
		n = 32
	}
	s := openStation(t, Config{})
	defer s.close(t)
	m := openMesh(t, s, n)
	listen := sockets(t)
	c := run(t, testenv.Self(roleEnv+"="+roleMesh, meshEnv+"="+strconv.Itoa(n)), s)
	var peers []exchangedInfo
	for _, it := range m.ifaces {
		p, err := readInfo(c.Out)
		require.NoError(t, err)
		peers = append(peers, p)
		require.NoError(t, writeInfo(c.In, exchangedInfo{Device: it.DeviceAddr(nil), Iface: it.IfaceAddr(nil)}))
	}
	m.connect(t, peers)
	testenv.ProgressWithin(t, watchdog, func() bool { m.progress(); return m.got == len(m.eps) })
	// Both processes have dialed at once, so that each may have chosen another one of the first connections.
	testenv.ProgressWithin(t, watchdog, func() bool { m.progress(); return sockets(t)-listen <= 2 })
	c.Line(t)

	require.NoError(t, m.ifaces[0].Close())
	m.ifaces, m.eps = m.ifaces[1:], m.eps[n:]
	for range 10 {
		m.progress()
	}
	for _, e := range m.eps {
		require.Equal(t, epUp, e.state, "%v", e.reason)
	}
	require.NoError(t, c.Process.Kill())
	for _, e := range m.eps {
		testenv.ProgressWithin(t, watchdog, func() bool { m.progress(); return e.state == epFailed })
		require.ErrorIs(t, e.reason, ucs.ErrConnReset)
	}
	testenv.ProgressWithin(t, watchdog, func() bool { m.progress(); return sockets(t) <= listen-1 })
	for _, it := range m.ifaces {
		assert.Empty(t, it.in)
	}
	m.close(t)
}
