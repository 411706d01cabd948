package softhca_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// networkPair returns two connected QPs of processes, each with a NIC, in a model of a network.
func networkPair(t *testing.T, l link) (m *timing.Model, a, b *node) {
	t.Helper()
	m, err := timing.NewNetwork(timing.ConnectXDDR())
	require.NoError(t, err)
	here, there := m.NewProcess(), m.NewProcess()
	there.Place(m.NewNIC())
	m.Enter(here)
	a = openNode(t, softhca.Config{Timing: m})
	m.Enter(there)
	b = a.sibling()
	m.Enter(nil)
	connect(a, b, l)
	return m, a, b
}

// until polls until there is a completion, and checks that it is successful.
func (n *node) until(id uint64) func() bool { return n.polled(id, verbs.WCSuccess) }

// script returns a thread that repeats each of the calls until it returns true.
func script(calls ...func() bool) timing.Step {
	return func() (bool, error) {
		if calls[0]() {
			calls = calls[1:]
		}
		return len(calls) == 0, nil
	}
}

func run(t *testing.T, m *timing.Model, steps ...timing.Step) []timing.Ran {
	t.Helper()
	ran, err := m.Run(1, steps)
	require.NoError(t, err)
	return ran
}

func sendOf(a *node, id uint64, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, n)}}
}

// A message is in the memory of the target when it has arrived, and not earlier; a large one takes the
// time of its bytes on the wire.
func TestTimedNetwork_Arrival(t *testing.T) {
	m, a, b := networkPair(t, defaultLink)
	fill(a.buf.Bytes(), 1)
	b.recv(9, 0, bufLen)
	var early byte
	ran := run(t, m,
		script(a.posted(sendOf(a, 1, bufLen)), func() bool { early = b.buf.Bytes()[0]; return true }, a.until(1)),
		script(b.until(9)))
	assert.Zero(t, early, "bytes that had arrived when the post returned")
	assert.Equal(t, a.buf.Bytes(), b.buf.Bytes())
	wire := timing.Second / timing.Time(timing.ConnectXDDR().LinkBandwidth/bufLen)
	assert.Greater(t, ran[1].End, wire)
	assert.Less(t, ran[1].End, 2*wire, "reading, sending and storing overlap")
	assert.Less(t, ran[1].End, ran[0].End, "the acknowledgement arrives later")
}

// The device retries a message that finds no receive, without a call of either side, and later messages
// wait.
func TestTimedNetwork_NotReady(t *testing.T) {
	m, a, b := networkPair(t, defaultLink)
	const late = 300 * timing.Microsecond
	var posted timing.Time
	run(t, m,
		script(a.posted(sendOf(a, 1, 8), sendOf(a, 2, 8)), a.until(1), a.until(2)),
		script(func() bool {
			m.Spend(late)
			b.recv(8, 0, 64)
			b.recv(9, 64, 64)
			posted = m.Now()
			m.Spend(late) // the target computes
			for _, id := range []uint64{8, 9} {
				assert.True(t, b.until(id)(), "the device has delivered the message meanwhile")
			}
			assert.NotZero(t, m.Stats().NotReady)
			return true
		}))
	assert.Greater(t, posted, late)
	assert.Greater(t, m.Stats().NotReady, uint64(5), "retries at intervals of 10 us and more")
}

// The limited retries of a send are used up in virtual time.
func TestTimedNetwork_RetriesExceeded(t *testing.T) {
	few := defaultLink
	few.rnr = 2
	m, a, _ := networkPair(t, few)
	run(t, m, script(a.posted(sendOf(a, 1, 8)), a.polled(1, verbs.WCRNRRetryExcErr)))
	assert.Equal(t, uint64(2), m.Stats().NotReady)
}

// A read returns the bytes of the target, and a fault completes with its status.
func TestTimedNetwork_ReadAndFault(t *testing.T) {
	m, a, b := networkPair(t, defaultLink)
	fill(b.buf.Bytes(), 5)
	read := verbs.SendWR{ID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{a.mr.SGE(0, bufLen)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	bad := read
	bad.ID, bad.RKey = 2, read.RKey+1
	ran := run(t, m, script(a.posted(read), a.until(1), a.posted(bad, sendOf(a, 3, 8)),
		a.polled(2, verbs.WCRemAccessErr), a.polled(3, verbs.WCWRFlushErr)))
	assert.Equal(t, b.buf.Bytes(), a.buf.Bytes())
	assert.Greater(t, ran[0].End, timing.Second/(2_000_000_000/bufLen), "bandwidth of the wire")
	assert.Equal(t, verbs.QPStateErr, a.qp.State())
}

// A message to an XRC SRQ is delivered to a receive while the target computes; one that arrives before its
// receive waits in the device of the initiator.
func TestTimedNetwork_XRC(t *testing.T) {
	m, err := timing.NewNetwork(timing.ConnectXDDR())
	require.NoError(t, err)
	here, there := m.NewProcess(), m.NewProcess()
	there.Place(m.NewNIC())
	m.Enter(there)
	n := openNode(t, softhca.Config{Timing: m})
	x := n.sibling().addDomain()
	s := x.newSRQ()
	m.Enter(here)
	i := n.newInitiator()
	m.Enter(nil)
	connectXRC(i, x, x.target, defaultLink)
	x.post(s, 7, 0, bufLen/2)
	fill(i.buf.Bytes(), 9)
	const long = 3000 * timing.Microsecond
	send := func(id uint64) func() bool {
		return func() bool { i.sendSRQ(s.Number(), id, bufLen/2); return true }
	}
	ran := run(t, m,
		script(send(1), send(2), i.until(1), func() bool {
			assert.Less(t, m.Now(), long, "the target still computes")
			return true
		}, i.until(2)),
		script(func() bool {
			m.Spend(long)
			assert.Equal(t, i.buf.Bytes()[:bufLen/2], x.buf.Bytes()[:bufLen/2])
			x.post(s, 8, bufLen/2, bufLen/2)
			return true
		}, x.until(7), x.until(8)))
	assert.Equal(t, i.buf.Bytes()[:bufLen/2], x.buf.Bytes()[bufLen/2:])
	assert.NotZero(t, m.Stats().NotReady)
	wire := timing.Second / timing.Time(timing.ConnectXDDR().LinkBandwidth/(bufLen/2))
	assert.Greater(t, ran[1].End, long)
	assert.Less(t, ran[1].End, long+2*wire+rnrStep, "delivery at the first retry after the receive was posted")
}

// rnrStep is longer than the delay between two tries of a large message: the RNR timer of defaultLink and
// the time on the wire.
const rnrStep = 400 * timing.Microsecond
