package tuple

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucp/internal/wire"
)

// closed returns a world whose peer has sent n messages through the queue of tag 7, which is closed, and others the
// usual way between them. None was received. The messages that are sent again are in flight.
func closed(t *testing.T, n int) (*world, *peer) {
	w, p := opened(t, 7)
	for i := range n {
		p.send(7, 8)
		p.send(uint64(100+i), 8)
	}
	w.Probe(7, exactMask)
	for len(p.there) == 0 || p.there[len(p.there)-1].tuple.Kind != wire.TupleResent {
		for _, step := range w.steps() {
			if len(p.there) == 0 || p.there[0].tuple.Kind != wire.TupleNext {
				step()
			}
		}
		run(p.leave)
	}
	return w, p
}

// TestResent_Steps: putting messages that are sent again in order needs one step for each that has arrived, with any
// number of other messages behind each.
func TestResent_Steps(t *testing.T) {
	for _, n := range []int{10, 100, 300} {
		w, p := closed(t, n)
		before := p.steps
		run(p.arrive)
		assert.Equal(t, uint64(2*n), p.steps-before, "%d", n)
		w.settle()
		for range 2 * n {
			w.post(0, 0, maxLen, false)
		}
		w.settle()
		w.check()
	}
}

// TestResent_Place: the place of a message that is sent again is rejected if it is not behind the earlier messages of
// the same queue, if it is behind messages that have not arrived, or if its queue is open or does not exist. The
// message then has the place of its arrival.
func TestResent_Place(t *testing.T) {
	_, p := opened(t, 7, 8)
	next := func(tag uint64, number uint32, at Place) bool {
		return p.Source.Take(&wire.Tuple{Tag: tag, Kind: wire.TupleNext, Number: number, Value: uint64(at)})
	}
	number := p.Find(7).number
	assert.False(t, next(7, number, newPlace(0, 1)), "the queue is open")
	w, p := closed(t, 3)
	number = p.Find(7).number
	usual := p.Source.usual
	assert.False(t, next(9, number, newPlace(1, 1)), "no queue")
	assert.False(t, next(7, number+1, newPlace(1, 1)), "another queue")
	assert.False(t, next(7, number, newPlace(1, 0)), "it went the usual way")
	assert.False(t, next(7, number, newPlace(usual+1, 1)), "behind one that has not come")
	require.True(t, next(7, number, newPlace(usual, 2)))
	assert.False(t, next(7, number, newPlace(usual, 2)), "twice")
	assert.False(t, next(7, number, newPlace(usual, 1)), "before it")
	assert.False(t, next(7, number, newPlace(usual-1, 3)), "before it")
	assert.Zero(t, p.Source.next)
	assert.True(t, next(7, number, newPlace(usual, 3)))
	assert.True(t, w.Paused())
}

// TestResent_Hostile: a peer claims for each message that it belongs before all others. No message is searched for
// that.
func TestResent_Hostile(t *testing.T) {
	const n = 1000
	w, p := closed(t, 1)
	p.there = nil
	number := p.Find(7).number
	before := p.steps
	for i := range n {
		p.Source.Take(&wire.Tuple{Tag: 7, Kind: wire.TupleNext, Number: number, Value: uint64(newPlace(0, uint32(n-i)))})
		u := &msg{from: p, data: make([]byte, 8)}
		u.node.Owner, u.node.Tag = u, uint64(1000+i)
		p.BeforeArrival(u.node.Tag)
		p.keep(u)
		p.AfterArrival(&u.node)
	}
	require.True(t, p.Source.Take(&wire.Tuple{Tag: 7, Kind: wire.TupleResent, Number: number}))
	assert.LessOrEqual(t, p.steps-before, uint64(n+2))
	assert.False(t, w.Paused())
}

// TestResent_LongAfter: a message of a queue follows a message that was sent again any number of messages in queues before.
// If the peer has no credit for it, it waits.
func TestResent_LongAfter(t *testing.T) {
	const half = 1 << (throughBits - 1)
	for _, between := range []uint64{0, half - 10, half - 1, half, half + 10, 2*half - 10, 2*half - 1, 2 * half, 3 * half, 1 << 40} {
		w, p := opened(t, 7, 8)
		closeQueue := func(tag uint64) {
			w.Probe(tag, exactMask)
			w.settle()
			require.True(t, p.Find(tag).Usual())
		}
		p.limit = p.unreceived + 2
		p.stream = true
		again := p.send(7, 8)
		closeQueue(7)
		require.Equal(t, SendPlace{p.Sender.usual, p.Sender.through}, p.Sender.sent, "it was sent again with its place")
		p.stream = false

		p.Sender.through += between // through queue 8, and received
		for range 4 {
			p.send(8, 8)
		}
		closeQueue(8)
		assert.Len(t, p.waits, 3, "%d: there is credit for one", between)
		for i := range p.waits[1:] {
			assert.True(t, p.waits[i+1].place.After(p.waits[i].place), "%d", between)
		}
		assert.False(t, again.place.After(p.Sender.sent))
		for _, tag := range []uint64{8, 8, 8, 8, 7} {
			w.post(tag, exactMask, maxLen, false)
		}
		w.settle()
		w.check()
	}
}
