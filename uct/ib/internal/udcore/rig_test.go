package udcore

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Posters are the transports over this package. A test that may import them sets it.
var Posters []ibtest.Poster

// poster is a transport with functions for these tests.
type poster struct{ ibtest.Poster }

// each runs a test with all posters.
func each(t *testing.T, f func(t *testing.T, over poster)) {
	ibtest.Each(t, Posters, func(t *testing.T, over ibtest.Poster) { f(t, poster{over}) })
}

// Core returns the Iface of this package.
func (it *Iface) Core() *Iface { return it }

// iface is the uct.Iface of the user and its core.
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

// side is an iface with a clock that the test sets.
type side struct {
	t     testing.TB
	it    *iface
	md    *ib.MD
	clock time.Duration
	errs  []error // errors of OnError
	got   []uint64
}

// newMD opens an MD on a loop device, which is closed when the test ends.
func (p poster) newMD(t testing.TB) *ib.MD { return ibtest.NewMD(t, softhca.FabricLoop, p.Transport) }

// newSide opens an iface whose handler of id 0 records the headers of messages.
func newSide(t testing.TB, md *ib.MD, cfg Config) *side {
	t.Helper()
	s := &side{t: t, md: md}
	s.open(cfg)
	t.Cleanup(func() { require.NoError(t, s.it.Close()) })
	return s
}

// pair opens two ifaces of one MD.
func (p poster) pair(t testing.TB, a, b Config) (*side, *side) {
	t.Helper()
	md := p.newMD(t)
	return newSide(t, md, a), newSide(t, md, b)
}

// alloc allocates memory to send from, which is closed before the iface.
func (s *side) alloc() uct.Mem {
	s.t.Helper()
	mem, err := s.md.Alloc(4096, uct.AccessLocalWrite)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, mem.Close()) })
	return mem
}

// open opens the iface.
func (s *side) open(cfg Config) {
	s.t.Helper()
	res, err := s.md.Resources()
	require.NoError(s.t, err)
	it, err := s.md.OpenIface(uct.IfaceParams{
		Transport: res[0].Transport, Device: res[0].Device, Config: cfg,
		OnError: func(_ uct.EP, err error) { s.errs = append(s.errs, err) },
	})
	require.NoError(s.t, err)
	s.it = asIface(it)
	s.it.core.now = func() time.Duration { return s.clock }
	require.NoError(s.t, it.SetAMHandler(0, s))
}

// HandleAM records a message.
func (s *side) HandleAM(data []byte, _ uct.Desc) bool {
	s.got = append(s.got, binary.LittleEndian.Uint64(data))
	return false
}

// epTo makes an EP to another side.
func (s *side) epTo(peer *side) *EP {
	s.t.Helper()
	ep, err := s.it.NewEP(uct.EPParams{DeviceAddr: peer.it.DeviceAddr(nil), IfaceAddr: peer.it.IfaceAddr(nil)})
	require.NoError(s.t, err)
	return ep.(*EP)
}

// send posts message i, which must succeed.
func (e *EP) send(t testing.TB, i uint64) {
	t.Helper()
	require.NoError(t, e.AMShort(0, i, nil))
}

// later advances the clock, and makes the next Progress read it.
func (s *side) later(d time.Duration) {
	s.clock += d
	s.it.core.polls = tickPolls
}

// After idleRounds consecutive idle rounds, time passes. Fewer are not enough, because the
// goroutine of the device may wait for a CPU.
const idleRounds = 16

// until calls Progress of sides until cond is true. Time passes when all are idle.
func until(t testing.TB, cond func() bool, sides ...*side) {
	t.Helper()
	idle := 0
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		if cond() {
			return true
		}
		idle++
		for _, s := range sides {
			if s.it.Progress() > 0 {
				idle = 0
			}
		}
		if idle == idleRounds {
			idle = 0
			for _, s := range sides {
				s.later(time.Millisecond)
			}
		}
		return false
	})
}

// arrive is until without passing of time.
func arrive(t testing.TB, cond func() bool, sides ...*side) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		for _, s := range sides {
			s.it.Progress()
		}
		return cond()
	})
}

// arm calls Arm of s, and Progress until that succeeds. No time passes.
func arm(t testing.TB, s *side) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		if s.it.Arm(uct.EventRecv) == nil {
			return true
		}
		s.it.Progress()
		return false
	})
}

// progressUntilIdle calls Progress until all sides are idle for some rounds. No time passes. Use it only before
// a check that something has not happened: the goroutine of the device may be slower. Use arrive or
// until to wait for something that must happen.
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

// upTo returns the messages 0..n-1.
func upTo(n int) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = uint64(i)
	}
	return s
}

// fill returns a packer of n bytes: a message number and ascending values.
type fill struct {
	i uint64
	n int
}

func (f *fill) Pack(dst []byte) int {
	for i := range dst[:f.n] {
		dst[i] = byte(i)
	}
	binary.LittleEndian.PutUint64(dst, f.i)
	return f.n
}
