package udcore

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// testName is the transport of this package's own tests: the core over verbs.
const testName = "core"

type transport struct{}

func (transport) Name() string { return testName }

func (transport) OpenIface(md *ib.MD, port uint8, p uct.IfaceParams) (uct.Iface, error) {
	it, err := Open(md, Params{Name: testName, Port: port, Driver: Verbs}, p)
	if err != nil {
		return nil, err
	}
	return it, nil
}

// openMD opens an MD on a software device of its own on the given fabric.
func openMD(fabric softhca.Fabric) (uct.MD, error) {
	dev, err := softhca.NewDevice(softhca.Config{Name: "dev", Fabric: fabric})
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	return ib.New(list, transport{}).OpenMD("dev")
}

// side is an iface of a rig, with a clock that the test moves.
type side struct {
	t     testing.TB
	it    *Iface
	md    *ib.MD
	clock time.Duration
	errs  []error // what OnError was told
	got   []uint64
}

func newMD(t testing.TB) *ib.MD {
	t.Helper()
	md, err := openMD(softhca.FabricLoop)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, md.Close()) })
	return md.(*ib.MD)
}

// newSide opens an iface whose handler of id 0 notes the headers of messages.
func newSide(t testing.TB, md *ib.MD, cfg Config) *side {
	t.Helper()
	s := &side{t: t, md: md}
	it, err := md.OpenIface(uct.IfaceParams{
		Transport: testName, Device: "dev:1", Config: cfg,
		OnError: func(_ uct.EP, err error) { s.errs = append(s.errs, err) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, it.Close()) })
	s.it = it.(*Iface)
	s.it.now = func() time.Duration { return s.clock }
	require.NoError(t, it.SetAMHandler(0, s))
	return s
}

// HandleAM notes a message.
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

// send posts message i, which must be taken.
func (e *EP) send(t testing.TB, i uint64) {
	t.Helper()
	require.NoError(t, e.AMShort(0, i, nil))
}

// later moves the clock, and makes the next Progress look at it.
func (s *side) later(d time.Duration) {
	s.clock += d
	s.it.polls = tickPolls
}

const budget = 1 << 20

// until progresses sides until cond holds. Time passes when all are idle.
func until(t testing.TB, cond func() bool, sides ...*side) {
	t.Helper()
	for range budget {
		if cond() {
			return
		}
		n := 0
		for _, s := range sides {
			n += s.it.Progress()
		}
		if n == 0 {
			for _, s := range sides {
				s.later(time.Millisecond)
			}
			runtime.Gosched()
		}
	}
	require.Fail(t, "nothing happens any more")
}

// settle progresses until all are idle for some rounds. Time stands still.
func settle(sides ...*side) {
	for idle := 0; idle < 64; idle++ {
		for _, s := range sides {
			if s.it.Progress() != 0 {
				idle = 0
			}
		}
		runtime.Gosched()
	}
}

// upTo is the messages 0..n-1.
func upTo(n int) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = uint64(i)
	}
	return s
}

// fill is a packer of n bytes that start with a message number and count up.
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
