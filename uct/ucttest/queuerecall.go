package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

func checkQueueAttach(t checkT, p *pair) {
	conns := p.A.Iface.Attr().Queue.MaxConns
	var queues []*queueEnd
	var all []uct.QueueConn
	for range min(conns, 8) + 1 {
		queues = append(queues, p.newQueue(t, p.B, 1))
	}
	for k := range min(conns, 8) {
		all = append(all, p.attach(t, p.AB, queues[k].q.Number()))
	}
	last := queues[len(queues)-1]
	if conns <= 8 {
		_, err := p.AB.EP.Ops().Queues.Attach(last.q.Number())
		require.Equal(t, uct.ErrBusy, err)
	}
	s := p.sendTo(t, p.AB, all[0], pattern(1, 10), 1)
	assert.Equal(t, uct.ErrBusy, all[0].Detach())
	queues[0].post(t, 1, 10)
	p.ended(t, s, ucs.StatusOK)
	p.detach(t, all[0])
	all[0] = p.attach(t, p.AB, last.q.Number())
	last.post(t, 2, 10)
	p.ended(t, p.sendTo(t, p.AB, all[0], pattern(2, 10), 1), ucs.StatusOK)
	last.await(t, 1)
	assert.Equal(t, pattern(2, 10), last.got[0].data)
	for _, c := range all {
		p.detach(t, c)
	}
	for _, e := range queues {
		assert.NoError(t, e.q.Close())
	}
}

// recall recalls the outstanding sends of a connection and waits until the recall completes.
func (p *pair) recall(t checkT, c uct.QueueConn) {
	t.Helper()
	done := p.comp(1)
	pending, err := c.Recall(&done.Completion)
	require.NoError(t, err, "recall")
	if !pending {
		done.expect = 0
		return
	}
	p.until(t, "recall", func() bool { return done.fired > 0 })
	assert.Equal(t, ucs.StatusOK, done.Status)
}

func checkQueueRecall(t checkT, p *pair) {
	e := p.newQueue(t, p.B, 8)
	for round := range 3 {
		e.got = nil
		before := e.q.Received()
		c := p.attach(t, p.AB, e.q.Number())
		for k := range 2 {
			e.post(t, k, 20)
		}
		var sends []*queueSend
		for k := range 4 {
			sends = append(sends, p.sendTo(t, p.AB, c, pattern(10*round+k, 20), 1))
		}
		p.ended(t, sends[1], ucs.StatusOK)
		if round == 2 { // receives are posted during the recall
			e.post(t, 2, 20)
		}
		p.recall(t, c)
		came := 0
		for k, s := range sends {
			require.Equal(t, 1, s.fired, "send %d, when Recall is complete", k)
			if s.Status == ucs.StatusOK {
				came++
			} else {
				require.Equal(t, ucs.StatusCanceled, s.Status, "send %d", k)
			}
		}
		p.until(t, "what has ended well was not received", func() bool { return int(e.q.Received()-before) >= came })
		p.settle()
		received := int(e.q.Received() - before)
		assert.LessOrEqual(t, received, 2+round/2)
		for k := range received {
			assert.Equal(t, pattern(10*round+k, 20), e.got[k].data)
		}
		for k := received; k < 4; k++ { // a receive posted after the recall matches no recalled send
			e.post(t, k, 20)
		}
		p.settle()
		require.Len(t, e.got, received)
		p.drainQueue(t, e, 4-received)
	}
	p.recallIdle(t, e)
	assert.NoError(t, e.q.Close())
}

// drainQueue fills n posted receives through a new connection.
func (p *pair) drainQueue(t checkT, e *queueEnd, n int) {
	t.Helper()
	if extra := len(e.got); extra+n < 4 {
		n = 4 - extra
	}
	c := p.attach(t, p.AB, e.q.Number())
	want := len(e.got) + n
	for k := range n {
		p.ended(t, p.sendTo(t, p.AB, c, pattern(1000+k, 20), 1), ucs.StatusOK)
	}
	e.await(t, want)
	assert.Equal(t, pattern(1000, 20), e.got[want-n].data, "the first message after Recall")
	p.detach(t, c)
}

// recallIdle recalls a connection without outstanding sends, more times than there are connections.
func (p *pair) recallIdle(t checkT, e *queueEnd) {
	t.Helper()
	for range 20 {
		p.recall(t, p.attach(t, p.AB, e.q.Number()))
	}
	e.got = nil
	e.post(t, 1, 20)
	c := p.attach(t, p.AB, e.q.Number())
	p.ended(t, p.sendTo(t, p.AB, c, pattern(5, 20), 1), ucs.StatusOK)
	e.await(t, 1)
	p.detach(t, c)
}

func checkQueueStop(t checkT, p *pair) {
	for round := range 3 {
		e := p.newQueue(t, p.B, 8)
		c := p.attach(t, p.AB, e.q.Number())
		for k := range 4 {
			e.post(t, k, 20)
		}
		for k := range 2 {
			p.ended(t, p.sendTo(t, p.AB, c, pattern(k, 20), 1), ucs.StatusOK)
		}
		if round > 0 {
			e.await(t, 2)
		}
		require.NoError(t, guard.AwaitUse(e.q.Stop))
		require.NoError(t, e.q.Stop(), "stop again")
		s, u := p.sendTo(t, p.AB, c, pattern(5, 20), 1), p.sendTo(t, p.AB, c, pattern(6, 20), 1)
		p.ended(t, s, ucs.StatusCanceled)
		p.ended(t, u, ucs.StatusCanceled)
		e.await(t, 4)
		for k, got := range e.got {
			want := received{id: k, data: []byte{}, st: ucs.StatusCanceled}
			if k < 2 {
				want = received{k, pattern(k, 20), 20, ucs.StatusOK}
			}
			assert.Equal(t, want, got)
		}
		assert.Equal(t, uint64(2), e.q.Received())
		assert.Equal(t, uct.ErrClosed, e.q.Post(&uct.QueueRecv{Func: func(*uct.QueueRecv) {}}, nil))
		p.recall(t, c)
		assert.NoError(t, e.q.Close())
		p.works(t, p.AB, "the ep, after its queue was stopped")
	}
}
