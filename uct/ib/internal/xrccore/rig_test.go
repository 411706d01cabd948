package xrccore

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// testName is the name of the transport in these tests.
const testName = "xrc"

func testTransport() ib.Transport { return OverVerbs(testName, time.Nanosecond, Config{}) }

// side is an iface with an EP and memory.
type side struct {
	it   *Iface
	ep   *EP
	mem  uct.Mem
	errs []error
}

// newSide opens an iface on a device of its own.
func newSide(t testing.TB, fabric softhca.Fabric, cfg Config) *side {
	t.Helper()
	return newSideOn(t, ibtest.NewMD(t, fabric, testTransport()), cfg)
}

func newSideOn(t testing.TB, md uct.MD, cfg Config) *side {
	t.Helper()
	s := &side{}
	it, err := md.OpenIface(uct.IfaceParams{Transport: testName, Device: ibtest.Device, Config: cfg,
		OnError: func(_ uct.EP, err error) { s.errs = append(s.errs, err) }})
	require.NoError(t, err)
	s.it = it.(*Iface)
	s.mem, err = md.Ext().Alloc.Alloc(1<<16, uct.AccessAll)
	require.NoError(t, err)
	ep, err := it.NewEP(uct.EPParams{})
	require.NoError(t, err)
	s.ep = ep.(*EP)
	t.Cleanup(func() {
		require.NoError(t, it.Close())
		require.NoError(t, s.mem.Close())
	})
	return s
}

// connected returns two sides whose EPs are connected.
func connected(t testing.TB, fabric softhca.Fabric, cfg Config) (a, b *side) {
	t.Helper()
	if fabric == softhca.FabricLoop {
		md := ibtest.NewMD(t, fabric, testTransport())
		a, b = newSideOn(t, md, cfg), newSideOn(t, md, cfg)
	} else {
		a, b = newSide(t, fabric, cfg), newSide(t, fabric, cfg)
	}
	connect(t, a, b)
	return a, b
}

func connect(t testing.TB, a, b *side) {
	t.Helper()
	for _, l := range [][2]*side{{a, b}, {b, a}} {
		require.NoError(t, l[0].ep.Connect(l[1].it.DeviceAddr(nil), l[1].ep.EPAddr(nil)))
	}
}

// until progresses sides until done.
func until(t testing.TB, done func() bool, sides ...*side) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		for _, s := range sides {
			s.it.Progress()
		}
		runtime.Gosched()
		return done()
	})
}

// iov returns n bytes of the side's memory at off.
func (s *side) iov(off, n int) []uct.IOV {
	return []uct.IOV{{Buf: s.mem.Bytes()[off : off+n], Mem: s.mem}}
}

// queue is a receive queue with receives of n bytes. It records their data and statuses.
type queue struct {
	uct.Queue
	s      *side
	n      int
	got    [][]byte
	status []ucs.Status
}

func (s *side) newQueue(t testing.TB, depth, n int) *queue {
	t.Helper()
	q, err := s.ep.NewQueue(depth)
	require.NoError(t, err)
	return &queue{Queue: q, s: s, n: n}
}

// post posts receive i.
func (q *queue) post(t testing.TB, i int) {
	t.Helper()
	iov := q.s.iov(i*q.n, q.n)
	require.NoError(t, q.Post(&uct.QueueRecv{Func: func(r *uct.QueueRecv) {
		q.got = append(q.got, append([]byte{}, iov[0].Buf[:r.Len]...))
		q.status = append(q.status, r.Status)
	}}, iov))
}

// sent is a send with its completion.
type sent struct {
	uct.Completion
	ended bool
}

// send sends n bytes with value b.
func (s *side) send(t testing.TB, c uct.QueueConn, off, n int, b byte) *sent {
	t.Helper()
	iov := s.iov(off, n)
	for i := range iov[0].Buf {
		iov[0].Buf[i] = b
	}
	out := &sent{}
	out.Count, out.Func = 1, func(*uct.Completion) { out.ended = true }
	pending, err := c.SendZcopy(iov, &out.Completion)
	require.NoError(t, err)
	require.True(t, pending)
	return out
}

func (s *side) attach(t testing.TB, number uint32) uct.QueueConn {
	t.Helper()
	c, err := s.ep.Attach(number)
	require.NoError(t, err)
	return c
}

// onFabrics runs a test on both fabrics.
func onFabrics(t *testing.T, f func(t *testing.T, fabric softhca.Fabric)) {
	for _, fabric := range []softhca.Fabric{softhca.FabricLoop, softhca.FabricShm} {
		t.Run(string(fabric), func(t *testing.T) { f(t, fabric) })
	}
}
