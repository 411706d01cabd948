package xrccore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// host represents the processes of a host by ifaces that share a memory domain and an XRC domain.
type host struct {
	procs []*proc
	all   []*side // of all hosts, for until
}

// proc is an iface with an EP to each iface of the other host.
type proc struct {
	*side
	eps []*EP
	got []byte // first bytes of messages
}

const testAM = 5

// newHost opens n ifaces on one device.
func newHost(t testing.TB, n int, cfg Config) *host {
	t.Helper()
	md := ibtest.NewMD(t, softhca.FabricShm, testTransport())
	h := &host{}
	for range n {
		p := &proc{side: newSideOn(t, md, inDomain(cfg))}
		require.NoError(t, p.ep.Close())
		require.NoError(t, p.it.SetAMHandler(testAM, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
			p.got = append(p.got, data[8])
			return false
		})))
		h.procs = append(h.procs, p)
	}
	return h
}

// connectHosts connects each iface of a host to each iface of the other.
func connectHosts(t testing.TB, a, b *host) {
	t.Helper()
	for _, x := range a.procs {
		for _, y := range b.procs {
			connectProcs(t, x, y)
		}
	}
	for _, p := range append(append([]*proc{}, a.procs...), b.procs...) {
		a.all = append(a.all, p.side)
	}
	b.all = a.all
}

func connectProcs(t testing.TB, x, y *proc) {
	t.Helper()
	ep := func(p *proc) *EP {
		e, err := p.it.NewEP(uct.EPParams{})
		require.NoError(t, err)
		p.eps = append(p.eps, e.(*EP))
		return e.(*EP)
	}
	e, f := ep(x), ep(y)
	require.NoError(t, e.Connect(y.it.DeviceAddr(nil), f.EPAddr(nil)))
	require.NoError(t, f.Connect(x.it.DeviceAddr(nil), e.EPAddr(nil)))
}

// exchange sends a message over each EP of the host, and waits until the other host has received all.
func (h *host) exchange(t testing.TB, to *host, b byte) {
	t.Helper()
	want := make([]int, len(to.procs))
	for i := range to.procs {
		want[i] = len(to.procs[i].got) + len(h.procs)
	}
	for _, p := range h.procs {
		for _, e := range p.eps {
			push(t, h.all, func() error { return e.AMShort(testAM, 0, []byte{b}) })
		}
	}
	until(t, func() bool {
		for i, p := range to.procs {
			if len(p.got) < want[i] {
				return false
			}
		}
		return true
	}, h.all...)
}

// push progresses sides and repeats post while it returns ErrNoResource.
func push(t testing.TB, sides []*side, post func() error) {
	t.Helper()
	until(t, func() bool {
		err := post()
		if err != uct.ErrNoResource {
			require.NoError(t, err)
		}
		return err == nil
	}, sides...)
}

// qps returns the number of QPs of the device of a host.
func (h *host) qps(t testing.TB) int {
	t.Helper()
	r, ok := h.procs[0].it.MD().Context().Resources()
	require.True(t, ok)
	return r.QPs
}

// TestNode_OneInitiatorPerDomain: each of n processes has one initiator to the other host, and each host has one target
// for each process of the other host; the number of EPs does not matter.
func TestNode_OneInitiatorPerDomain(t *testing.T) {
	const n = 4
	a, b := newHost(t, n, Config{}), newHost(t, n, Config{})
	connectHosts(t, a, b)
	a.exchange(t, b, 1)
	b.exchange(t, a, 2)
	for _, h := range []*host{a, b} {
		for _, p := range h.procs {
			assert.Len(t, p.it.node.initiators, 1)
			assert.Equal(t, 1, p.it.node.all.live, "initiators that the EP does not use are closed")
			assert.Len(t, p.eps, n)
		}
		targets := map[uint32]bool{}
		for _, p := range h.procs {
			for _, e := range p.eps {
				targets[e.path.source.Number()] = true
			}
		}
		assert.Len(t, targets, n)
		assert.Equal(t, 2*n, h.qps(t), "rc needs n*n")
	}
}

// TestNode_RejectedMessageFailsOnlyItsEP: the SRQ of one iface of a host rejects messages, as after the death of its
// process. The EP to it fails. The other EPs over the same initiator continue, and their messages arrive once, in
// order.
func TestNode_RejectedMessageFailsOnlyItsEP(t *testing.T) {
	a, b := newHost(t, 1, Config{}), newHost(t, 3, Config{})
	connectHosts(t, a, b)
	a.exchange(t, b, 0)
	from := a.procs[0]
	// From now on the device of b rejects messages to this queue, as if its process had died.
	require.NoError(t, b.procs[1].it.ReceiveQueue().Stop())
	var posted byte
	for posted = 1; posted <= 6; posted++ {
		for i, e := range from.eps {
			if err := e.AMShort(testAM, 0, []byte{posted}); err != nil {
				assert.Equal(t, 1, i)
				assert.ErrorIs(t, err, uct.ErrEPFailed)
			}
		}
	}
	until(t, func() bool { return len(b.procs[0].got) == 7 && len(b.procs[2].got) == 7 && len(from.errs) == 1 }, a.all...)
	for _, p := range []*proc{b.procs[0], b.procs[2]} {
		assert.Equal(t, []byte{0, 1, 2, 3, 4, 5, 6}, p.got)
	}
	assert.ErrorIs(t, from.errs[0], uct.ErrPeerClosed)
	assert.ErrorIs(t, from.eps[1].Err(), uct.ErrEPFailed)
	assert.True(t, from.eps[0].Ready() && from.eps[2].Ready())
	in := from.eps[0].path.initiator
	until(t, func() bool { return in.head == in.tail }, a.all...)
	assert.Equal(t, phaseUp, in.phase)
	assert.EqualValues(t, 1, in.epoch, "the initiator connects again only once")
}

// TestNode_JoinsNoWaitingInitiator: an EP that connects while the existing initiator to the domain waits for an offer
// uses an initiator of its own. Here the peers of the waiting initiator make no progress, so no offer arrives.
func TestNode_JoinsNoWaitingInitiator(t *testing.T) {
	a, b := newHost(t, 1, Config{}), newHost(t, 2, Config{})
	from, to := a.procs[0], b.procs[1]
	connectProcs(t, from, b.procs[0])
	from.eps[0].path.initiator.holdBack()
	connectProcs(t, from, to)
	require.NoError(t, from.eps[1].AMShort(testAM, 0, []byte{7}))
	until(t, func() bool { return len(to.got) > 0 || len(from.errs) > 0 }, from.side, to.side)
	assert.Empty(t, from.errs)
	assert.Equal(t, []byte{7}, to.got)
}

// TestNode_FailsAllEPsWithoutOffer: no process of the peer's host replaces the failed target. After the time limit for
// an offer all EPs fail with ErrTimedOut: the peers may be alive and reachable by another transport.
func TestNode_FailsAllEPsWithoutOffer(t *testing.T) {
	cfg := Config{Config: rccore.Config{Timeout: 1, RetryCount: 1}} // 1 ns: the time limit is over at the first check
	a, b := newHost(t, 1, cfg), newHost(t, 2, cfg)
	connectHosts(t, a, b)
	a.exchange(t, b, 0)
	from := a.procs[0]
	for _, p := range b.procs {
		require.NoError(t, p.it.ReceiveQueue().Stop())
	}
	require.NoError(t, from.eps[0].AMShort(testAM, 0, []byte{1}))
	until(t, func() bool { return len(from.errs) == 2 }, from.side) // b makes no progress
	for _, e := range from.eps {
		assert.ErrorIs(t, e.Err(), uct.ErrEPFailed)
	}
	assert.ErrorIs(t, from.errs[0], ucs.ErrPeerClosed, "the EP with the rejected message")
	assert.ErrorIs(t, from.errs[1], ucs.ErrTimedOut)
	assert.NotErrorIs(t, from.errs[1], ucs.ErrConnReset)
	assert.Empty(t, from.it.node.initiators, "a new EP creates a new initiator")
}

// TestNode_FlushedWaitsForEvent: after the device has moved an initiator to ERR, it flushes work requests before the
// event with the cause arrives. The EPs fail only then, with that cause.
func TestNode_FlushedWaitsForEvent(t *testing.T) {
	a, b := newHost(t, 1, Config{}), newHost(t, 2, Config{})
	connectHosts(t, a, b)
	a.exchange(t, b, 0)
	from := a.procs[0]
	in := from.eps[0].path.initiator
	until(t, func() bool { return in.head == in.tail }, a.all...)
	require.NoError(t, in.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState)) // simulates a fault that the device detects
	var c uct.Completion
	ended := 0
	c.Count, c.Func = 1, func(*uct.Completion) { ended++ }
	require.NoError(t, from.eps[0].AMShort(testAM, 0, []byte{1}))
	pending, err := from.eps[0].Flush(&c)
	require.NoError(t, err)
	require.True(t, pending)
	until(t, func() bool {
		in.limit = timelimit.New(testenv.Watchdog) // the wait for the event must not time out
		return in.head == in.tail && in.phase == phaseFlushed
	}, from.side)
	assert.Zero(t, ended)
	assert.Empty(t, from.errs)
	assert.Equal(t, 1, from.it.node.HandleFault(in.qp, ucs.StatusPeerClosed))
	until(t, func() bool { return len(from.errs) == 2 && ended == 1 }, from.side)
	assert.Equal(t, ucs.StatusPeerClosed, c.Status)
	for _, err := range from.errs {
		assert.ErrorIs(t, err, ucs.ErrPeerClosed)
	}
}

// TestNode_DeliversEarlyMessagesAfterConnect: a message that arrives before Connect of its EP, over the initiator of
// another EP, is delivered after Connect.
func TestNode_DeliversEarlyMessagesAfterConnect(t *testing.T) {
	a, b := newHost(t, 1, Config{}), newHost(t, 2, Config{})
	from := a.procs[0]
	connectProcs(t, from, b.procs[0])
	a.all = []*side{from.side, b.procs[0].side, b.procs[1].side}
	x, err := from.it.NewEP(uct.EPParams{})
	require.NoError(t, err)
	y, err := b.procs[1].it.NewEP(uct.EPParams{})
	require.NoError(t, err)
	e, f := x.(*EP), y.(*EP)
	require.NoError(t, e.Connect(b.procs[1].it.DeviceAddr(nil), f.EPAddr(nil)))
	require.NoError(t, e.AMShort(testAM, 0, []byte{1}))
	require.NoError(t, e.AMShort(testAM, 0, []byte{2}))
	until(t, func() bool { return len(f.path.early) == 3 }, a.all...) // the messages and the source message
	assert.Empty(t, b.procs[1].got)
	require.NoError(t, f.Connect(from.it.DeviceAddr(nil), e.EPAddr(nil)))
	assert.Empty(t, b.procs[1].got, "handlers are called by Progress")
	until(t, func() bool { return len(b.procs[1].got) == 2 }, a.all...)
	assert.Equal(t, []byte{1, 2}, b.procs[1].got)
	assert.Equal(t, from.eps[0].path.initiator, e.path.initiator)
}

// TestNode_RepostsReceivesOfEarlyMessages: messages for an EP that is closed before its Connect occupy receives of the
// shared queue. Close posts these receives again.
func TestNode_RepostsReceivesOfEarlyMessages(t *testing.T) {
	const depth = 8
	cfg := Config{Config: rccore.Config{RxDepth: depth}}
	a, b := newHost(t, 1, cfg), newHost(t, 2, cfg)
	from, to := a.procs[0], b.procs[1]
	connectProcs(t, from, b.procs[0])
	connectProcs(t, from, to)
	a.all = []*side{from.side, b.procs[0].side, to.side}
	for range depth {
		x, err := from.it.NewEP(uct.EPParams{})
		require.NoError(t, err)
		y, err := to.it.NewEP(uct.EPParams{})
		require.NoError(t, err)
		e, f := x.(*EP), y.(*EP)
		require.NoError(t, e.Connect(to.it.DeviceAddr(nil), f.EPAddr(nil)))
		push(t, a.all, func() error { return e.AMShort(testAM, 0, []byte{1}) })
		until(t, func() bool { return len(f.path.early) == 2 }, a.all...) // the message and the source message
		require.NoError(t, f.Close())
		require.NoError(t, e.Close())
	}
	require.NoError(t, from.eps[1].AMShort(testAM, 0, []byte{7}))
	until(t, func() bool { return len(to.got) > 0 }, a.all...)
	assert.Equal(t, []byte{7}, to.got)
}

// TestNode_ReusesNumbersLast: numbers of closed EPs are reused last.
func TestNode_ReusesNumbersLast(t *testing.T) {
	n := &node{next: 1}
	var p, q path
	require.NoError(t, n.number(&p))
	n.paths[p.number] = nil
	require.NoError(t, n.number(&q))
	assert.NotEqual(t, p.number, q.number)
	n.next = 1<<16 - 1
	require.NoError(t, n.number(&p))
	assert.Equal(t, uint16(1<<16-1), p.number)
	require.NoError(t, n.number(&p))
	assert.Equal(t, uint16(1), p.number)
	require.NoError(t, n.number(&p))
	assert.Equal(t, uint16(3), p.number, "2 is in use")
}

// batches is a completion queue; each poll returns the next batch.
type batches struct {
	verbs.CQProvider
	next [][]verbs.WC
}

func (b *batches) Poll(wc []verbs.WC) (n int) {
	if len(b.next) > 0 {
		n = copy(wc, b.next[0])
		b.next = b.next[1:]
	}
	return n
}

// TestCompletions_PollsBehindDropped: a poll drops completions of a closed initiator and then polls again for
// others. If it returned fewer completions than requested, the caller would take the queue for empty and wait for an
// event.
func TestCompletions_PollsBehindDropped(t *testing.T) {
	n := &node{}
	gone := n.all.add(&initiator{})
	n.all.remove(gone)
	old := verbs.WC{ID: uint64(gone) << 32, Status: verbs.WCWRFlushErr}
	recv := func(i uint64) verbs.WC { return verbs.WC{ID: buffer.RecvID + i, Status: verbs.WCWRFlushErr} }
	q := &completions{&batches{next: [][]verbs.WC{{old}, {old}, {recv(0), old}, {recv(1)}, {recv(2), recv(3)}}}, n}
	wc := make([]verbs.WC, 2)
	for i := range uint64(2) {
		require.Equal(t, 2, q.Poll(wc))
		assert.Equal(t, []uint64{buffer.RecvID + 2*i, buffer.RecvID + 2*i + 1}, []uint64{wc[0].ID, wc[1].ID})
	}
	assert.Zero(t, q.Poll(wc))
}
