package tuple

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// usual is a configuration without rare events.
var usual = Config{Max: 4, MaxMessage: maxLen, Wildcards: true}

// opened returns a world whose peers have queues for some tags each.
func opened(t *testing.T, tags ...uint64) (*world, *peer) {
	w := newWorld(t, usual, 1)
	for _, tag := range tags {
		w.open(w.peers[0], tag)
		require.False(t, w.peers[0].Find(tag).Usual())
	}
	return w, w.peers[0]
}

// run repeats a step until it does nothing more.
func run(step func() bool) {
	for step() {
	}
}

// TestSwitch: messages that are sent before the queue is open, while it is requested, and through it arrive in order.
// Those in the queue wait for their receives, posted before or after.
func TestSwitch(t *testing.T) {
	for _, first := range []bool{true, false} {
		w := newWorld(t, usual, 1)
		p := w.peers[0]
		receive := func() {
			for range 6 {
				w.post(7, exactMask, maxLen, false)
			}
		}
		if first {
			receive()
		}
		p.send(7, 8)
		p.send(7, 8) // after it OPEN
		run(p.leave)
		run(p.arrive)
		p.send(7, 8) // while the queue is requested
		run(p.handleTold)
		require.False(t, p.Find(7).Usual())
		for range 3 {
			p.send(7, 8)
		}
		run(p.carry)
		require.Zero(t, p.got(), "none overtakes")
		if !first {
			receive()
		}
		w.settle()
		w.check()
		assert.EqualValues(t, 3, w.stats.receives.Load())
	}
}

// got returns the number of messages that queues have received.
func (p *peer) got() (n uint64) {
	for _, q := range p.byNumber {
		n += q.got
	}
	return n
}

// TestSender_ForgetsTags: the sender counts messages of a limited number of tags, and always of those with queues.
func TestSender_ForgetsTags(t *testing.T) {
	w := newWorld(t, usual, 1)
	p := w.peers[0]
	p.send(1, 8)
	p.send(1, 8)
	w.settle()
	require.False(t, p.Find(1).Usual())
	for tag := uint64(2); tag < 20*countedTags*uint64(usual.Max); tag++ {
		p.send(tag, 8)
		require.LessOrEqual(t, p.Sender.out.n, countedTags*usual.Max)
	}
	require.NotNil(t, p.Find(1))
	assert.False(t, p.Find(1).Usual(), "it has its queue")
	w.settle()
}

// TestSource_NoQueue: if the transport of a peer cannot open a queue, its messages continue the usual way.
func TestSource_NoQueue(t *testing.T) {
	w := newWorld(t, usual, 1)
	p := w.peers[0]
	p.full = true
	for range 10 {
		p.send(7, 8)
		w.post(7, exactMask, maxLen, false)
		w.settle()
	}
	w.check()
	assert.Zero(t, w.stats.opened.Load())
	assert.NotZero(t, w.stats.refused.Load())
	assert.Empty(t, p.byNumber)
}

// TestEvict_LooksAtABoundedRate: a tag without room for its queue does not cause a search of all others for each
// message, but once for as many messages as there are tags.
func TestEvict_LooksAtABoundedRate(t *testing.T) {
	cfg := usual
	cfg.Max = 2
	w := newWorld(t, cfg, 1)
	p := w.peers[0]
	w.open(p, 1)
	w.open(p, 2)
	p.send(1, 8)
	p.send(2, 8) // neither can be evicted
	for tag := range uint64(5) {
		p.send(100+tag, 8)
		w.post(100+tag, exactMask, maxLen, false)
	}
	w.settle()
	next := func() {
		w.post(9, exactMask, maxLen, false)
		p.send(9, 8)
		w.settle()
	}
	next()
	next() // it requests a queue, and there is no room
	w.post(1, exactMask, maxLen, false)
	w.settle()
	n := 0
	for ; p.Find(1) != nil && !p.Find(1).Usual(); n++ {
		require.Less(t, n, 20, "it is evicted at some time")
		next()
	}
	assert.Greater(t, n, 2)
	w.post(2, exactMask, maxLen, false)
	w.settle()
	w.check()
}

// TestSwitch_Wildcard: a queue that opens while a receive with a mask waits is closed before it gets that receive.
func TestSwitch_Wildcard(t *testing.T) {
	w := newWorld(t, usual, 1)
	p := w.peers[0]
	p.send(7, 8)
	p.send(7, 8)
	run(p.leave)
	run(p.arrive) // the queue is offered
	for range 3 {
		w.post(7, 0, maxLen, false)
	}
	run(p.handleTold)
	p.send(9, 8) // behind SWITCH
	w.settle()
	w.check()
	w.post(7, 1, maxLen, false)
	p.send(8, 8)
	p.send(7, 8)
	w.settle()
	w.check()
	assert.Zero(t, w.stats.receives.Load())
}

// TestBacklog: receives for which a queue has no room are posted in order, also if another one is posted when there is
// room and a completion was not handled yet.
func TestBacklog(t *testing.T) {
	w, p := opened(t, 7)
	for range fakeDepth + 2 {
		w.post(7, exactMask, maxLen, false)
	}
	p.send(7, 8)
	run(p.carry)
	last := w.post(7, exactMask, maxLen, false)
	w.cancel(w.recvs[len(w.recvs)-2])
	assert.Equal(t, wasCanceled, w.recvs[len(w.recvs)-2].at, "one that the queue does not have")
	for range fakeDepth + 1 {
		p.send(7, 8)
	}
	w.settle()
	w.check()
	assert.Equal(t, hasMessage, last.at)
	assert.Zero(t, w.stats.canceled.Load(), "the queue stays")
}

// TestClose_ReceivedUnknown: a message that was received while the sender has recalled it is not sent again, whether
// the receiver or the sender knows first.
func TestClose_ReceivedUnknown(t *testing.T) {
	for _, unsure := range []bool{true, false} {
		w, p := opened(t, 7)
		p.unsure = unsure
		w.post(7, exactMask, maxLen, false)
		s := p.send(7, 8)
		next := p.send(7, 8)
		run(p.carry) // neither side has polled
		next.cancel()
		run(p.leave)
		run(p.arrive)
		for range 3 {
			w.Work() // the completion of the receive is outstanding
		}
		run(func() bool { return poll(&p.toSend) })
		run(p.leave)
		run(p.arrive)
		w.Work()
		w.settle()
		w.check()
		assert.Equal(t, []ucs.Status{ucs.StatusOK}, s.ended)
		assert.Equal(t, []ucs.Status{ucs.StatusCanceled}, next.ended)
		assert.Zero(t, w.stats.resent.Load())
	}
}

// TestCancel: a receive in a queue is canceled by closing the queue, and the other receives match as before.
func TestCancel(t *testing.T) {
	w, p := opened(t, 7)
	var vs []*recv
	for range 3 {
		vs = append(vs, w.post(7, exactMask, maxLen, false))
	}
	w.cancel(vs[1])
	assert.True(t, w.Paused())
	p.send(7, 8)
	p.send(7, 8)
	w.settle()
	w.check()
	assert.Equal(t, []recvAt{hasMessage, wasCanceled, hasMessage}, []recvAt{vs[0].at, vs[1].at, vs[2].at})
	assert.EqualValues(t, 1, w.stats.canceled.Load())
}

// TestTruncated: a message longer than its receive does not affect the next one. A message longer than queues accept
// uses the usual way.
func TestTruncated(t *testing.T) {
	w, p := opened(t, 7)
	through := w.stats.receives.Load()
	short, long := w.post(7, exactMask, 8, false), w.post(7, exactMask, maxLen+1, false)
	p.send(7, maxLen)
	w.settle()
	p.send(7, maxLen+1)
	w.settle()
	w.check()
	assert.Equal(t, []int{maxLen, maxLen + 1}, []int{short.n, long.n})
	assert.Equal(t, through+1, w.stats.receives.Load())
	assert.EqualValues(t, 1, w.stats.long.Load())
}

// TestEvict: with more tags than queues, the least recently used tag loses its queue.
func TestEvict(t *testing.T) {
	w, p := opened(t, 1, 2, 3, 4)
	for _, tag := range []uint64{1, 3, 4} {
		w.post(tag, exactMask, maxLen, false)
		p.send(tag, 8)
		w.settle()
	}
	for range 2 { // it requests one, and again when one is free
		w.open(p, 5)
	}
	w.check()
	assert.True(t, p.Find(2).Usual())
	for _, tag := range []uint64{1, 3, 4, 5} {
		assert.False(t, p.Find(tag).Usual(), "tag %d", tag)
	}
}

// TestBusy: if no connection is free, a tuple does not wait for tuples that wait for receives: its messages use the
// usual way.
func TestBusy(t *testing.T) {
	w, p := opened(t, 1, 2, 3)
	for _, tag := range []uint64{1, 2, 3} {
		p.send(tag, 8)
	}
	assert.EqualValues(t, 1, w.stats.busy.Load())
	w.settle()
	assert.Equal(t, 1, w.tags.Unexpected())
	for _, tag := range []uint64{3, 2, 1} {
		w.post(tag, exactMask, maxLen, false)
	}
	w.settle()
	for _, s := range p.sends {
		assert.Equal(t, []ucs.Status{ucs.StatusOK}, s.ended)
	}
}

// TestAnotherSender: a message of the tag from another peer matches the receive in the queue, and queues of a peer do
// not close for receives of others.
func TestAnotherSender(t *testing.T) {
	w := newWorld(t, usual, 2)
	p, other := w.peers[0], w.peers[1]
	w.open(p, 7)
	w.open(p, 8)
	v := w.post(7, exactMask, maxLen, false)
	other.send(7, 8)
	w.settle()
	assert.Equal(t, hasMessage, v.at)
	assert.EqualValues(t, 1, w.stats.others.Load())
	assert.True(t, p.Find(7).Usual())
	assert.False(t, p.Find(8).Usual())
}

// TestSilent: a sender that does not reply while its queue closes delays its own messages only. Messages of others
// match the receives in order.
func TestSilent(t *testing.T) {
	w := newWorld(t, usual, 2)
	p, other := w.peers[0], w.peers[1]
	w.open(p, 7)
	exact := w.post(7, exactMask, maxLen, false)
	wild := w.post(0, 0, maxLen, false)
	other.send(9, 20)
	run(other.leave)
	run(func() bool { return poll(&p.toRecv) })
	run(other.arrive)
	assert.True(t, w.Paused())
	assert.Equal(t, isHeld, exact.at)
	assert.Equal(t, hasMessage, wild.at)
	assert.Nil(t, w.Probe(7, exactMask))
	p.send(7, 8)
	w.settle()
	assert.Equal(t, hasMessage, exact.at)
	assert.False(t, w.Paused())
}

// TestEnd: when a connection ends, each send fails once, with the reason, and the receives of its queues can match
// messages of others.
func TestEnd(t *testing.T) {
	w := newWorld(t, usual, 2)
	p, other := w.peers[0], w.peers[1]
	w.open(p, 7)
	w.open(p, 8)
	v := w.post(8, exactMask, maxLen, false)
	for range fakeDepth + 2 {
		p.send(7, 8)
	}
	p.Sender.End(ucs.StatusConnReset)
	for _, x := range p.conns {
		x.cut(ucs.StatusConnReset)
	}
	p.dead = true
	p.Source.End()
	p.outbox, p.there, p.back = nil, nil, nil
	w.settle()
	for _, s := range p.sends[2*(firstRequest+1):] {
		assert.Equal(t, []ucs.Status{ucs.StatusConnReset}, s.ended, "message %d", s.id)
	}
	queues, _ := w.Queues()
	assert.Zero(t, queues)
	assert.False(t, w.Paused())
	require.Equal(t, inTable, v.at)
	other.send(8, 8)
	w.settle()
	assert.Equal(t, hasMessage, v.at)
}

// TestTake_Nonsense: invalid control messages of a peer are rejected and change nothing.
func TestTake_Nonsense(t *testing.T) {
	w, p := opened(t, 7)
	for kind := wire.TupleOpened; kind <= wire.TupleResent; kind++ {
		for _, c := range []wire.Tuple{{Tag: 7, Number: 99, Kind: kind}, {Tag: 6, Number: 1, Kind: kind}} {
			switch kind {
			case wire.TupleOpened, wire.TupleStop, wire.TupleClosed:
				assert.False(t, p.Sender.Take(&c), "%+v", c)
			default:
				assert.False(t, p.Source.Take(&c), "%+v", c)
			}
		}
	}
	w.post(7, exactMask, maxLen, false)
	p.send(7, 8)
	w.settle()
	w.check()
}

// TestAnotherTransport: when messages use another transport, so do queues.
func TestAnotherTransport(t *testing.T) {
	w, p := opened(t, 7)
	w.Probe(7, exactMask)
	w.settle()
	require.True(t, p.Find(7).Usual())
	p.carrier = newCarrier()
	p.last = 100 // numbers of queues
	received := w.stats.receives.Load()
	w.open(p, 8)
	for range 3 {
		w.post(8, exactMask, maxLen, false)
		p.send(8, 8)
	}
	w.settle()
	w.check()
	assert.EqualValues(t, received+4, w.stats.receives.Load())
}
