package rccore

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Posters are the transports that use this package. A test file that may import them sets it.
var Posters []ibtest.Poster

// poster adds the helpers of these tests to a transport.
type poster struct{ ibtest.Poster }

// each runs a test over each poster.
func each(t *testing.T, f func(t *testing.T, over poster)) {
	ibtest.Each(t, Posters, func(t *testing.T, over ibtest.Poster) { f(t, poster{over}) })
}

// Core returns the Iface of this package in an iface.
func (it *Iface) Core() *Iface { return it }

// Core returns the EP of this package in an endpoint.
func (e *EP) Core() *EP { return e }

// iface is the iface of the user, with the Iface of this package in it.
type iface struct {
	uct.Iface
	uct.IfaceAddresser
	uct.Waker
	uct.EventPender
	core *Iface
}

func asIface(it uct.Iface) *iface {
	return &iface{it, it.Ext().Address, it.Ext().Wake, it.Ext().Pending, it.(interface{ Core() *Iface }).Core()}
}

// endpoint is the EP of the user, with the EP of this package in it.
type endpoint struct {
	uct.EP
	uct.EPConnector
	uct.AMSender
	uct.Putter
	uct.Getter
	uct.Atomics
	core *EP
}

func asEndpoint(e uct.EP) *endpoint {
	return &endpoint{e, e.Ops().Connect, e.Ops().AM, e.Ops().Put, e.Ops().Get, e.Ops().Atomics,
		e.(interface{ Core() *EP }).Core()}
}

// side is an iface of a test with memory that its peers access.
type side struct {
	it     *iface
	md     *ib.MD
	mem    uct.Mem
	key    uct.RKey
	errs   []error // errors that OnError got
	failed []uct.EP
}

// newMD opens an MD on a loop device. It is closed at the end of the test.
func (p poster) newMD(t testing.TB) *ib.MD { return ibtest.NewMD(t, softhca.FabricLoop, p.Transport) }

// newSide opens an iface on md with 64 KiB of memory.
func (p poster) newSide(t testing.TB, md *ib.MD, cfg Config) *side {
	t.Helper()
	s := &side{md: md}
	it, err := md.OpenIface(uct.IfaceParams{
		Transport: p.Name(), Device: ibtest.Device, Config: &cfg,
		OnError: func(ep uct.EP, err error) { s.failed, s.errs = append(s.failed, ep), append(s.errs, err) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, it.Close()) })
	s.it = asIface(it)
	s.mem, err = md.Alloc(64<<10, uct.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.mem.Close()) })
	packed, err := s.mem.PackRKey(nil)
	require.NoError(t, err)
	s.key, err = md.UnpackRKey(packed)
	require.NoError(t, err)
	return s
}

// newEP creates an EP that is not connected.
func (s *side) newEP(t testing.TB) *endpoint {
	t.Helper()
	ep, err := s.it.NewEP(uct.EPParams{})
	require.NoError(t, err)
	return asEndpoint(ep)
}

// join connects an EP of a with one of b.
func join(t testing.TB, a, b *side) (ab, ba *endpoint) {
	t.Helper()
	ab, ba = a.newEP(t), b.newEP(t)
	require.NoError(t, ab.Connect(b.it.DeviceAddr(nil), ba.EPAddr(nil)))
	require.NoError(t, ba.Connect(a.it.DeviceAddr(nil), ab.EPAddr(nil)))
	return ab, ba
}

// pair opens two ifaces on one loop device and connects an EP of each.
func (p poster) pair(t testing.TB, cfg Config) (a, b *side, ab, ba *endpoint) {
	t.Helper()
	md := p.newMD(t)
	a, b = p.newSide(t, md, cfg), p.newSide(t, md, cfg)
	ab, ba = join(t, a, b)
	return a, b, ab, ba
}

// until calls Progress of sides until cond is true. The device's goroutines post events, so a time
// limits it, not a number of calls.
func until(t testing.TB, cond func() bool, sides ...*side) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		if cond() {
			return true
		}
		for _, s := range sides {
			s.it.Progress()
		}
		return false
	})
}

// stalledLimit returns a limit of d that has passed in a time in which the process did not run, so nothing
// of it counts.
func stalledLimit(d time.Duration) timelimit.Limit {
	return timelimit.At(timelimit.Now()-2*d, d, d/timelimit.Looks)
}

// progressUntilIdle calls Progress until all sides are idle for some rounds. It is for events that must not
// happen. The device's goroutine may be slower than that, so a test uses until for events that must
// happen.
func progressUntilIdle(sides ...*side) {
	for idle := 0; idle < 64; idle++ {
		for _, s := range sides {
			if s.it.Progress() != 0 {
				idle = 0
			}
		}
		runtime.Gosched()
	}
}

// flush flushes e and expects success.
func flush(t testing.TB, e *endpoint, sides ...*side) {
	t.Helper()
	require.Equal(t, ucs.StatusOK, flushStatus(t, e, sides...))
}

func flushStatus(t testing.TB, e *endpoint, sides ...*side) (st uct.Status) {
	t.Helper()
	done := false
	c := &uct.Completion{Count: 1, Func: func(c *uct.Completion) { done, st = true, c.Status }}
	pending, err := e.Flush(c)
	require.NoError(t, err)
	if pending {
		until(t, func() bool { return done }, sides...)
	}
	return st
}

// counter counts active messages and checks that their headers are consecutive.
type counter struct {
	t testing.TB
	n uint64
}

func (c *counter) HandleAM(data []byte, _ uct.Desc) bool {
	require.Equal(c.t, c.n, binary.LittleEndian.Uint64(data))
	c.n++
	return false
}

// fill packs n bytes that count up.
type fill struct{ n int }

func (f *fill) Pack(dst []byte) int {
	for i := range dst[:f.n] {
		dst[i] = byte(i)
	}
	return f.n
}
