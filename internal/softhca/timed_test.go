package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func newTiming(t testing.TB) *timing.Model {
	t.Helper()
	m, err := timing.New(timing.ConnectX4())
	require.NoError(t, err)
	return m
}

// timedPair returns two connected QPs of a device under a model.
func timedPair(t *testing.T) (m *timing.Model, a, b *node) {
	t.Helper()
	m = newTiming(t)
	a = openNode(t, softhca.Config{Timing: m})
	b = a.sibling()
	connect(a, b, defaultLink)
	return m, a, b
}

// steps runs one thread that repeats each of the calls until it returns true.
func steps(t *testing.T, m *timing.Model, calls ...func() bool) timing.Ran {
	t.Helper()
	ran, err := m.Run(1, []timing.Step{func() (bool, error) {
		if calls[0]() {
			calls = calls[1:]
		}
		return len(calls) == 0, nil
	}})
	require.NoError(t, err)
	return ran[0]
}

// polled returns a call that polls until there is a completion, and checks it.
func (n *node) polled(id uint64, want verbs.WCStatus) func() bool {
	return func() bool {
		k := n.cq.Poll(n.wcs[:1])
		if k == 0 {
			return false
		}
		assert.Equal(n.t, verbs.WC{ID: id, Status: want}, verbs.WC{ID: n.wcs[0].ID, Status: n.wcs[0].Status})
		return true
	}
}

func (n *node) posted(wr ...verbs.SendWR) func() bool {
	return func() bool { n.send(wr...); return true }
}

func inlineTo(b *node, id uint64, payload string) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
		Inline: []byte(payload), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
}

// The bytes are copied; the completion arrives after the latency of the model.
func TestTimed_Write(t *testing.T) {
	m, a, b := timedPair(t)
	p := timing.ConnectX4()
	ran := steps(t, m, a.posted(inlineTo(b, 7, "virtual")), a.polled(7, verbs.WCSuccess))
	assert.Equal(t, "virtual", string(b.buf.Bytes()[:7]))
	took := ran.End - ran.Begin
	least := p.RegisterWrite + p.PCIeOneWay + p.AckRoundTrip + p.CQEWrite
	assert.Greater(t, took, least)
	assert.Less(t, took, 2*least)
	s := m.Stats()
	assert.Equal(t, [4]uint64{1, 1, 1, 1}, [4]uint64{s.Messages, s.Doorbells, s.BlueFlames, s.Completions})
	assert.Greater(t, s.Polls, uint64(1), "the completion arrived after the first poll")
	a.idle()
}

// The device detects by the contents of the register whether the doorbell contained the work
// request.
func TestTimed_BlueFlameOrDoorbell(t *testing.T) {
	m, a, b := timedPair(t)
	wr := inlineTo(b, 1, "x")
	steps(t, m,
		a.posted(wr), a.polled(1, verbs.WCSuccess),
		a.posted(wr, wr), a.polled(1, verbs.WCSuccess), a.polled(1, verbs.WCSuccess),
		a.posted(wr), a.polled(1, verbs.WCSuccess),
		a.posted(wr, wr), a.polled(1, verbs.WCSuccess), a.polled(1, verbs.WCSuccess))
	s := m.Stats()
	assert.Equal(t, [4]uint64{6, 4, 2, 2}, [4]uint64{s.Messages, s.Doorbells, s.BlueFlames, s.Reads})
}

// The NIC reads a payload that is not inline by DMA, once for each SGE; a read or an atomic returns its
// bytes.
func TestTimed_PayloadAndRead(t *testing.T) {
	m, a, b := timedPair(t)
	copy(a.buf.Bytes(), "gathered")
	copy(b.buf.Bytes()[100:], "fetched")
	steps(t, m,
		a.posted(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, 4), a.mr.SGE(4, 4)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}),
		a.polled(1, verbs.WCSuccess),
		a.posted(verbs.SendWR{ID: 2, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(50, 7)}, RemoteAddr: b.mr.Addr() + 100, RKey: b.mr.RKey()}),
		a.polled(2, verbs.WCSuccess))
	assert.Equal(t, "gathered", string(b.buf.Bytes()[:8]))
	assert.Equal(t, "fetched", string(a.buf.Bytes()[50:57]))
	assert.Equal(t, uint64(2), m.Stats().Reads)
}

// A transfer above Config.InlineBudget completes in the doorbell, as there is no engine for the rest.
func TestTimed_LargeWrite(t *testing.T) {
	m, a, b := timedPair(t)
	fill(a.buf.Bytes(), 3)
	ran := steps(t, m,
		a.posted(verbs.SendWR{ID: 1, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled,
			SGList: []verbs.SGE{a.mr.SGE(0, bufLen)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}),
		a.polled(1, verbs.WCSuccess))
	assert.Equal(t, a.buf.Bytes(), b.buf.Bytes())
	wire := timing.Second / (12_500_000_000 / bufLen) // approximately: without headers
	assert.Greater(t, ran.End-ran.Begin, wire*9/10)
	assert.Less(t, ran.End-ran.Begin, wire*2)
}

// Sends arrive, and their completions also follow virtual time.
func TestTimed_Send(t *testing.T) {
	m, a, b := timedPair(t)
	b.recv(9, 0, 64)
	steps(t, m,
		a.posted(verbs.SendWR{ID: 1, Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: []byte("hello")}),
		a.polled(1, verbs.WCSuccess))
	b.succeed(9)
	assert.Equal(t, "hello", string(b.buf.Bytes()[:5]))
}

// A work request that fails stops its QP as usual: earlier ones complete, then it completes with the
// error, and later ones are flushed.
func TestTimed_Fault(t *testing.T) {
	m, a, b := timedPair(t)
	bad := inlineTo(b, 2, "x")
	bad.RKey++
	steps(t, m,
		a.posted(inlineTo(b, 1, "x"), bad, inlineTo(b, 3, "x")),
		a.polled(1, verbs.WCSuccess), a.polled(2, verbs.WCRemAccessErr), a.polled(3, verbs.WCWRFlushErr))
	require.Equal(t, verbs.QPStateErr, a.qp.State())
	require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	require.NoError(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	connect(a, b, defaultLink)
	steps(t, m, a.posted(inlineTo(b, 4, "again")), a.polled(4, verbs.WCSuccess))
	assert.Equal(t, "again", string(b.buf.Bytes()[:5]))
}

// Outside of a run a device under a model works as usual, and takes no virtual time.
func TestTimed_OutsideOfRun(t *testing.T) {
	m, a, b := timedPair(t)
	a.send(inlineTo(b, 1, "set-up"))
	a.succeed(1)
	assert.Equal(t, "set-up", string(b.buf.Bytes()[:6]))
	assert.Zero(t, m.Now())
}

// Two devices on one model share its NIC: each is slower than a single one.
func TestTimed_DevicesShareNIC(t *testing.T) {
	const messages = 200
	params := timing.ConnectX4()
	params.MessageGap = timing.Microsecond
	run := func(devices int) timing.Time {
		m, err := timing.New(params)
		require.NoError(t, err)
		var threads []timing.Step
		for range devices {
			a := openNode(t, softhca.Config{Timing: m})
			b := a.sibling()
			connect(a, b, defaultLink)
			left, out := messages, 0
			threads = append(threads, func() (bool, error) {
				if left > 0 && out < depth {
					left, out = left-1, out+1
					a.send(inlineTo(b, 1, "x"))
					return false, nil
				}
				out -= a.cq.Poll(a.wcs[:])
				return left+out == 0, nil
			})
		}
		ran, err := m.Run(1, threads)
		require.NoError(t, err)
		return ran[0].End - ran[0].Begin
	}
	alone, together := run(1), run(2)
	assert.Greater(t, alone, messages*timing.Microsecond)
	assert.Greater(t, together, 2*messages*timing.Microsecond-10*timing.Microsecond)
}

func TestTimed_OnlyOnLoop(t *testing.T) {
	_, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricShm, Timing: newTiming(t)})
	require.ErrorContains(t, err, "loop")
}
