package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

func checkQueueLimits(t checkT, p *pair) {
	queues := p.BA.EP.Ops().Queues
	for _, depth := range []int{-1, 0, p.A.Iface.Attr().Queue.MaxDepth + 1} {
		_, err := queues.NewQueue(depth)
		assert.ErrorIs(t, err, uct.ErrInvalidParam, "depth %d", depth)
	}
	e := p.newQueue(t, p.B, 2)
	p.refusesReceives(t, e)
	c := p.attach(t, p.AB, e.q.Number())
	p.refusesSends(t, c)
	for range 2 { // the refused calls did not change the queue and the connection
		p.sendTo(t, p.AB, c, pattern(1, 8), 1)
	}
	e.await(t, 2)
	p.checkFull(t, e, c)
	p.detach(t, c)
	require.NoError(t, e.q.Close())
	p.checkMaxQueues(t)
}

// refusesReceives posts invalid receives to a queue of depth 2, which must return errors, and then fills the queue.
func (p *pair) refusesReceives(t checkT, e *queueEnd) {
	t.Helper()
	mem := p.B.staged.mem
	r := &uct.QueueRecv{Func: func(*uct.QueueRecv) { p.complain("a refused receive ended") }}
	buf := e.buffer(t, 8)
	long := make([]uct.IOV, p.A.Iface.Attr().Queue.MaxRecvIOV+1)
	for k := range long {
		long[k] = uct.IOV{Buf: buf[:1], Mem: mem}
	}
	assert.Equal(t, uct.ErrTooLong, e.q.Post(r, long), "pieces of a receive")
	if p.B.MD.Attr().NeedMemH {
		assert.Equal(t, uct.ErrInvalidParam, e.q.Post(r, []uct.IOV{{Buf: buf}}), "memory without registration")
		assert.Equal(t, uct.ErrInvalidParam, e.q.Post(r, []uct.IOV{{Buf: make([]byte, 8), Mem: mem}}), "memory of another region")
	}
	e.post(t, 1, 8)
	e.post(t, 2, 8)
	assert.Equal(t, uct.ErrNoResource, e.q.Post(r, []uct.IOV{{Buf: buf, Mem: mem}}), "a full queue")
}

// refusesSends posts invalid sends, which must return errors.
func (p *pair) refusesSends(t checkT, c uct.QueueConn) {
	t.Helper()
	a := p.A.Iface.Attr().Queue
	done := &uct.Completion{Count: 1, Func: func(*uct.Completion) { p.complain("a refused send ended") }}
	piece := uct.IOV{Buf: p.A.staged.take(1), Mem: p.A.staged.mem}
	var iov []uct.IOV
	for range a.MaxIOV + 1 {
		iov = append(iov, piece)
	}
	_, err := c.SendZcopy(iov, done)
	assert.Equal(t, uct.ErrTooLong, err, "pieces of a send")
	if n := a.MaxMessage + 1; n <= stageLen {
		_, err = c.SendZcopy([]uct.IOV{{Buf: p.A.staged.buf[:n], Mem: p.A.staged.mem}}, done)
		assert.Equal(t, uct.ErrTooLong, err, "length of a message")
	}
	if p.A.MD.Attr().NeedMemH {
		_, err = c.SendZcopy([]uct.IOV{{Buf: make([]byte, 8)}}, done)
		assert.Equal(t, uct.ErrInvalidParam, err, "memory without registration")
	}
	p.A.staged.giveBack(piece.Buf)
}

// checkFull posts sends to a queue without receives until ErrNoResource.
func (p *pair) checkFull(t checkT, e *queueEnd, c uct.QueueConn) {
	t.Helper()
	const most = 1 << 14
	buf := p.A.staged.take(1)
	iov := []uct.IOV{{Buf: buf, Mem: p.A.staged.mem}}
	sent, ended := 0, 0
	var done []*uct.Completion
	for ; sent < most; sent++ {
		done = append(done, &uct.Completion{Count: 1, Func: func(*uct.Completion) { ended++ }})
		if _, err := c.SendZcopy(iov, done[sent]); err != nil {
			require.Equal(t, uct.ErrNoResource, err)
			break
		}
	}
	require.Positive(t, sent)
	require.Less(t, sent, most, "a connection holds as much as it likes")
	for got := 0; got < sent; {
		for k := 0; k < 2 && got < sent; k++ {
			e.post(t, 3, 0)
			got++
		}
		p.until(t, "the queue is emptied", func() bool { return ended >= got && len(e.got) >= 2+got })
	}
	p.A.staged.giveBack(buf)
}

// checkMaxQueues creates the maximum number of queues, if it is small.
func (p *pair) checkMaxQueues(t checkT) {
	t.Helper()
	a := p.B.Iface.Attr().Queue
	const few = 256
	if a.MaxQueues > few {
		return
	}
	var all []uct.Queue
	for range a.MaxQueues {
		q, err := p.BA.EP.Ops().Queues.NewQueue(1)
		require.NoError(t, err)
		all = append(all, q)
	}
	_, err := p.BA.EP.Ops().Queues.NewQueue(1)
	assert.ErrorIs(t, err, uct.ErrNoMemory)
	for _, q := range all {
		assert.NoError(t, q.Close())
	}
}
