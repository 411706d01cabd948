package timing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// round returns a machine with round costs in nanoseconds; a byte takes 1 ns on PCIe and on the wire.
func round() Params {
	return Params{
		PostCall: 10 * Nanosecond, WQEBuild: 20 * Nanosecond, DoorbellRecord: 30 * Nanosecond, RegisterWrite: 100 * Nanosecond,
		PollCall: 5 * Nanosecond, CQERead: 7 * Nanosecond, Atomic: 3 * Nanosecond, LineTransfer: 50 * Nanosecond,
		QPLines: 2, CQLines: 1, RetireLines: 1,
		PCIeOneWay: 200 * Nanosecond, PCIeRead: 1000 * Nanosecond, CQEWrite: 300 * Nanosecond,
		PCIeBandwidth: 1e9, TLPHeader: 16, TLPPayload: 256, ReadTags: 64, WQERead: 512, WQEReads: 1,
		MessageGap: 8 * Nanosecond, Rails: 2, RailLookup: 40 * Nanosecond,
		AckRoundTrip: 2000 * Nanosecond, LinkBandwidth: 1e9, PacketHeader: 32, PacketPayload: 4096,
		CopyBandwidth: 1e9,
	}
}

func newModel(t testing.TB, p Params) *Model {
	t.Helper()
	m, err := New(p)
	require.NoError(t, err)
	return m
}

// port is a QP with a CQ, used as by a driver and a device, without data.
type port struct {
	t    testing.TB
	m    *Model
	qp   *QP
	cq   *CQ
	next uint16

	visible  []Time   // of completions
	indexes  []uint16 // their work requests
	consumed uint32
}

func (p *port) Complete(index uint16) {
	p.visible = append(p.visible, p.m.Now())
	p.indexes = append(p.indexes, index)
}

// newPort returns a port without locks on a page.
func newPort(t testing.TB, m *Model, page *Page) *port {
	t.Helper()
	p := &port{t: t, m: m}
	p.cq = m.NewCQ(false, func() uint32 { return p.consumed })
	p.qp = m.NewQP(QPConfig{Page: page, Sink: p, CQ: p.cq})
	return p
}

// write returns a signaled work request of n inline bytes, in one basic block.
func (p *port) write(n int) WQE {
	p.next++
	return WQE{Index: p.next - 1, Blocks: 1, Signaled: true, Len: uint64(n)}
}

// gather returns a signaled work request whose payload the NIC reads.
func (p *port) gather(s Span) WQE {
	w := p.write(int(s.Len))
	w.Payload = []Span{s}
	return w
}

// poll consumes the visible completions.
func (p *port) poll() int {
	p.cq.Poll()
	n := len(p.visible) - int(p.consumed)
	p.consumed += uint32(n)
	return n
}

// even is the register of a page that these tests use.
const even = 0x800

// each runs one step in each thread, and returns their start and end times. All begin within the first
// microsecond.
func each(t testing.TB, m *Model, steps ...func()) []Ran {
	t.Helper()
	list := make([]Step, len(steps))
	for i, f := range steps {
		list[i] = func() (bool, error) { f(); return true, nil }
	}
	ran, err := m.Run(1, list)
	require.NoError(t, err)
	return ran
}

// at waits until the clock of the running thread is t.
func at(m *Model, t Time) { m.current.until(t) }
