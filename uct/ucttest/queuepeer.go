package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var queuePeerChecks = []check{
	{
		name: "peer/queue",
		rule: "another process receives messages through a queue; if it has posted receives and is stopped, sends fill them and complete",
		need: uct.CapQueue, run: checkPeerQueue,
	},
	{
		name: "peer/queue-killed",
		rule: "when a peer dies, sends that wait for its receives, and a recall, complete once, with an error; OnError is called once",
		need: uct.CapQueue | uct.CapErrPeer, opts: Options{PeerDies: true}, run: checkPeerQueueKilled,
	},
}

// queue posts count receives of n bytes. The first call creates the queue.
func (s *server) queue(count, n int) uint32 {
	if s.recvs == nil {
		s.recvs = s.pair.newQueue(s.t, s.side, min(16, s.side.Iface.Attr().Queue.MaxDepth))
	}
	for k := range count {
		s.recvs.post(s.t, k, n)
	}
	return s.recvs.q.Number()
}

// queued returns the number of received messages and the last message.
func (s *server) queued() (count int, last []byte) {
	got := s.recvs.got
	if len(got) == 0 {
		return 0, nil
	}
	return len(got), got[len(got)-1].data
}

func checkPeerQueue(t checkT, p *pair) {
	f := p.startPeer(t)
	const n = 20000
	number := f.ask(t, request{Op: opQueue, Count: 6, Len: n}).Number
	c := p.attach(t, f.l, number)
	for k := range 3 {
		p.ended(t, p.sendTo(t, f.l, c, pattern(k, n), 1), ucs.StatusOK)
	}
	p.until(t, "the peer did not receive", func() bool { return f.ask(t, request{Op: opQueued}).Received == 3 })
	assert.Equal(t, pattern(2, n), f.ask(t, request{Op: opQueued}).Data)
	if p.h.OneSided {
		require.NoError(t, f.Stop())
		for k := range 3 {
			p.ended(t, p.sendTo(t, f.l, c, pattern(10+k, n), 1), ucs.StatusOK)
		}
		waits := p.sendTo(t, f.l, c, pattern(20, n), 1)
		p.settle()
		assert.Zero(t, waits.fired, "there was no receive")
		require.NoError(t, f.Continue())
		f.ask(t, request{Op: opQueue, Count: 1, Len: n})
		p.ended(t, waits, ucs.StatusOK)
		p.until(t, "the peer did not receive", func() bool { return f.ask(t, request{Op: opQueued}).Received == 7 })
		assert.Equal(t, pattern(20, n), f.ask(t, request{Op: opQueued}).Data)
	}
	p.detach(t, c)
	f.leave(t)
}

func checkPeerQueueKilled(t checkT, p *pair) {
	for _, recalled := range []bool{false, true} {
		f := p.startPeer(t)
		f.l.failed = true
		number := f.ask(t, request{Op: opQueue, Count: 1, Len: 100}).Number
		c := p.attach(t, f.l, number)
		p.ended(t, p.sendTo(t, f.l, c, pattern(1, 100), 1), ucs.StatusOK)
		one, two := p.sendTo(t, f.l, c, pattern(2, 100), 1), p.sendTo(t, f.l, c, pattern(3, 100), 1)
		p.settle()
		require.NoError(t, f.Kill())
		done := p.comp(1)
		done.expect = 0
		if recalled {
			if pending, err := c.Recall(&done.Completion); pending && err == nil {
				done.expect = 1
			}
		}
		if f.l.AM != nil || f.l.Put != nil {
			f.dead(t)
		}
		p.eventually(t, "sends to a dead peer did not end", func() bool {
			return one.fired > 0 && two.fired > 0 && done.fired == done.expect
		})
		assert.NotEqual(t, ucs.StatusOK, one.Status)
		assert.NotEqual(t, ucs.StatusOK, two.Status)
		p.oneFailure(t, f.l, died...)
		_, err := f.l.EP.Ops().Queues.Attach(number)
		assert.ErrorIs(t, err, uct.ErrEPFailed)
		p.closeLink(t, f.l)
		assert.NoError(t, f.Close())
	}
	p.works(t, p.AB, "another ep")
}
