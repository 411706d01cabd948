package ucttest

import (
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

var queueChecks = []check{
	{
		name: "queue/sizes",
		rule: "a message to a queue, of any number of IOVs, fills the IOVs of the first receive in order; send and receive complete once, the receive with the length of the message",
		need: uct.CapQueue, run: checkQueueSizes,
	},
	{
		name: "queue/limits",
		rule: "a call that exceeds a limit of the attributes or has unregistered memory has no effect and returns ErrTooLong, ErrInvalidParam or ErrNoMemory; ErrNoResource when a queue or a connection is full",
		need: uct.CapQueue, run: checkQueueLimits,
	},
	{
		name: "queue/order",
		rule: "messages of a connection are received in order, and receives are filled in the order in which they were posted",
		need: uct.CapQueue, run: checkQueueOrder,
	},
	{
		name: "queue/waits",
		rule: "a message without a receive remains pending without a timeout; other connections, active messages and flushes do not wait for it",
		need: uct.CapQueue, run: checkQueueWaits,
	},
	{
		name: "queue/attach",
		rule: "Attach returns ErrBusy while all connections are attached, and succeeds after one was detached; Detach returns ErrBusy while a send is outstanding",
		need: uct.CapQueue, run: checkQueueAttach,
	},
	{
		name: "queue/recall",
		rule: "Recall completes sends that were not received with StatusCanceled, and then itself; none of them is received later, Received counts the messages that were received, and the connection can send again",
		need: uct.CapQueue, run: checkQueueRecall,
	},
	{
		name: "queue/stop",
		rule: "Stop completes receives without a message, in order, with StatusCanceled; the queue receives no more messages, sends to it complete with StatusCanceled, and the EP continues to work",
		need: uct.CapQueue, run: checkQueueStop,
	},
	{
		name: "queue/number",
		rule: "the number of a queue is not 0 and unique until Close; sends to a number that is no queue of the peer complete with StatusCanceled, and the EP continues to work",
		need: uct.CapQueue, run: checkQueueNumber,
	},
	{
		name: "queue/senders",
		rule: "several EPs send to one queue: each message is received once",
		need: uct.CapQueue, run: checkQueueSenders,
	},
	{
		name: "queue/other-peer",
		rule: "a queue receives messages only of its peer: sends of other ifaces complete with StatusCanceled and fill no receive",
		need: uct.CapQueue, run: checkQueueOtherPeer,
	},
	{
		name: "queue/close",
		rule: "Close of an EP completes its sends with StatusCanceled; Close of an iface completes its receives with StatusCanceled",
		need: uct.CapQueue, run: checkQueueClose,
	},
	{
		name: "queue/allocations",
		rule: "Post, SendZcopy, Attach and Detach do not allocate after set-up",
		need: uct.CapQueue, run: checkQueueAllocations,
	},
}

// queueEnd is a queue of a side and the results of its receives, in order of completion.
type queueEnd struct {
	p    *pair
	s    *side
	q    uct.Queue
	sink []byte
	got  []received
}

// received is a completed receive.
type received struct {
	id   int
	data []byte
	len  int
	st   ucs.Status
}

// sinkLen is the length in bytes of the second IOV of each receive.
const sinkLen = 64 << 10

// newQueue returns a queue of s for the peer of the first link from s.
func (p *pair) newQueue(t checkT, s *side, depth int) *queueEnd {
	t.Helper()
	l := p.links[slices.IndexFunc(p.links, func(l *link) bool { return l.From == s })]
	return p.newQueueFor(t, l, depth)
}

// newQueueFor returns a queue of l.From for the peer of l.
func (p *pair) newQueueFor(t checkT, l *link, depth int) *queueEnd {
	t.Helper()
	s := l.From
	q, err := l.EP.Ops().Queues.NewQueue(depth)
	require.NoError(t, err, "new queue")
	e := &queueEnd{p: p, s: s, q: q}
	e.sink = e.buffer(t, sinkLen)
	return e
}

// buffer allocates n bytes of the side's registered memory until the end of the check.
func (e *queueEnd) buffer(t checkT, n int) []byte {
	t.Helper()
	b := e.s.staged.take(n)
	require.NotNil(t, b, "memory for %d bytes", n)
	scribble(b)
	return b
}

// post posts a receive of n bytes. The sink receives the bytes of the message after the first n.
func (e *queueEnd) post(t checkT, id, n int) {
	t.Helper()
	buf := e.buffer(t, n)
	r := &uct.QueueRecv{}
	completions := 0
	r.Func = func(r *uct.QueueRecv) {
		if completions++; completions > 1 {
			e.p.complain("a receive completed %d times", completions)
		}
		e.got = append(e.got, received{id, append([]byte{}, buf[:min(n, r.Len)]...), r.Len, r.Status})
	}
	iov := []uct.IOV{{Buf: buf, Mem: e.s.staged.mem}, {Buf: e.sink, Mem: e.s.staged.mem}}
	if n == 0 {
		iov = iov[1:]
	}
	require.NoError(t, e.q.Post(r, iov), "post a receive")
}

// await waits until n receives have completed.
func (e *queueEnd) await(t checkT, n int) {
	t.Helper()
	e.p.until(t, "receives of the queue", func() bool { return len(e.got) >= n })
	require.Len(t, e.got, n)
}

// queueSend is a send to a queue.
type queueSend struct {
	*comp
	data []byte // copy of the payload
	buf  []byte
	iov  []uct.IOV
}

// attach attaches a connection to the queue and retries while Attach returns ErrBusy.
func (p *pair) attach(t checkT, l *link, number uint32) uct.QueueConn {
	t.Helper()
	var c uct.QueueConn
	p.until(t, "no connection is free", func() bool {
		var err error
		c, err = l.EP.Ops().Queues.Attach(number)
		if err == uct.ErrBusy {
			return false
		}
		require.NoError(t, err, "attach")
		return true
	})
	return c
}

// newSend prepares a send of data in the given number of IOVs.
func (p *pair) newSend(t checkT, l *link, data []byte, pieces int) *queueSend {
	t.Helper()
	s := &queueSend{comp: p.comp(1), data: data, buf: l.From.staged.take(len(data))}
	require.NotNil(t, s.buf, "memory for %d bytes", len(data))
	copy(s.buf, data)
	s.onFire = func() { l.From.staged.giveBack(s.buf) }
	s.iov = l.From.staged.cut(s.buf, split(len(data), pieces))
	return s
}

// start posts the send. It returns false if the post returned ErrNoResource.
func (p *pair) start(t checkT, c uct.QueueConn, s *queueSend) bool {
	t.Helper()
	p.posting = true
	pending, err := c.SendZcopy(s.iov, &s.Completion)
	p.posting = false
	if err == uct.ErrNoResource {
		return false
	}
	require.NoError(t, err, "send to a queue")
	require.True(t, pending, "a send to a queue is pending")
	return true
}

// sendTo posts a send of data and retries while the connection is full. The caller must have posted enough receives
// if the connection is full.
func (p *pair) sendTo(t checkT, l *link, c uct.QueueConn, data []byte, pieces int) *queueSend {
	t.Helper()
	s := p.newSend(t, l, data, pieces)
	p.until(t, "the connection remains full", func() bool { return p.start(t, c, s) })
	return s
}

// ended waits until the send completes and checks its status.
func (p *pair) ended(t checkT, s *queueSend, want ucs.Status) {
	t.Helper()
	p.until(t, "a send to a queue", func() bool { return s.fired > 0 })
	assert.Equal(t, want, s.Status)
}

// detach detaches a connection.
func (p *pair) detach(t checkT, c uct.QueueConn) {
	t.Helper()
	require.NoError(t, c.Detach(), "detach")
}

func checkQueueSizes(t checkT, p *pair) {
	a := p.A.Iface.Attr().Queue
	e := p.newQueue(t, p.B, 4)
	c := p.attach(t, p.AB, e.q.Number())
	for k, tc := range []struct{ n, buf, pieces int }{
		{0, 0, 1}, {0, 16, 1}, {1, 1, 1}, {1, 0, 1}, {8, 8, 1}, {8, 3, 1}, {100, 100, min(2, a.MaxIOV)}, {1000, 10, a.MaxIOV},
		{min(a.MaxMessage, sinkLen), 0, 1}, {min(a.MaxMessage, 100000), 100000, a.MaxIOV}, {10, 4096, 1},
	} {
		data := pattern(k, tc.n)
		e.got = nil
		e.post(t, k, tc.buf)
		s := p.sendTo(t, p.AB, c, data, tc.pieces)
		e.await(t, 1)
		p.ended(t, s, ucs.StatusOK)
		assert.Equal(t, received{k, append([]byte{}, data[:min(tc.n, tc.buf)]...), tc.n, ucs.StatusOK}, e.got[0])
		assert.Equal(t, uint64(k+1), e.q.Received())
	}
	p.detach(t, c)
	assert.NoError(t, e.q.Close())
	assert.NoError(t, e.q.Close(), "close again")
}

func checkQueueOrder(t checkT, p *pair) {
	const count, n = 40, 24
	depth := min(8, p.B.Iface.Attr().Queue.MaxDepth)
	e := p.newQueue(t, p.B, depth)
	c := p.attach(t, p.AB, e.q.Number())
	posted := 0
	feed := func() {
		for posted < count && posted-len(e.got) < depth {
			e.post(t, posted, n)
			posted++
		}
	}
	var sends []*queueSend
	for k := range count {
		s := p.newSend(t, p.AB, pattern(k, n), 1+k%2)
		p.until(t, "the connection remains full", func() bool {
			feed() // sends can complete before the receives
			return p.start(t, c, s)
		})
		sends = append(sends, s)
	}
	p.until(t, "all messages", func() bool {
		feed()
		return len(e.got) == count
	})
	for k, got := range e.got {
		require.Equal(t, received{k, pattern(k, n), n, ucs.StatusOK}, got)
	}
	for _, s := range sends {
		p.ended(t, s, ucs.StatusOK)
	}
	p.detach(t, c)
	assert.NoError(t, e.q.Close())
}

func checkQueueWaits(t checkT, p *pair) {
	e := p.newQueue(t, p.B, 4)
	c := p.attach(t, p.AB, e.q.Number())
	one, two := p.sendTo(t, p.AB, c, pattern(1, 100), 1), p.sendTo(t, p.AB, c, pattern(2, 200), 1)
	p.settle()
	assert.Zero(t, one.fired+two.fired, "it was not received")
	p.works(t, p.AB, "the ep, while a message is pending")
	p.flush(t, p.AB)
	other := p.newQueue(t, p.B, 1)
	if p.A.Iface.Attr().Queue.MaxConns > 1 {
		d := p.attach(t, p.AB, other.q.Number())
		other.post(t, 9, 50)
		p.ended(t, p.sendTo(t, p.AB, d, pattern(9, 50), 1), ucs.StatusOK)
		other.await(t, 1)
		p.detach(t, d)
	}
	assert.Zero(t, one.fired+two.fired, "it was not received")
	e.post(t, 1, 100)
	p.ended(t, one, ucs.StatusOK)
	p.settle()
	assert.Zero(t, two.fired, "it was not received")
	e.post(t, 2, 200)
	p.ended(t, two, ucs.StatusOK)
	e.await(t, 2)
	assert.Equal(t, pattern(1, 100), e.got[0].data)
	assert.Equal(t, pattern(2, 200), e.got[1].data)
	p.detach(t, c)
	assert.NoError(t, other.q.Close())
	assert.NoError(t, e.q.Close())
}

func checkQueueNumber(t checkT, p *pair) {
	seen := map[uint32]bool{}
	var all []*queueEnd
	for range min(4, p.B.Iface.Attr().Queue.MaxQueues) {
		e := p.newQueue(t, p.B, 1)
		n := e.q.Number()
		assert.NotZero(t, n)
		assert.False(t, seen[n], "number %d twice", n)
		seen[n] = true
		all = append(all, e)
	}
	gone := all[0].q.Number()
	mine := p.newQueue(t, p.A, 1) // a queue of the sender
	mine.post(t, 1, 8)
	require.NoError(t, all[0].q.Close())
	for _, n := range []uint32{gone, mine.q.Number()} {
		if n != gone && seen[n] { // the peer has a queue with the same number
			continue
		}
		c := p.attach(t, p.AB, n)
		p.ended(t, p.sendTo(t, p.AB, c, pattern(1, 8), 1), ucs.StatusCanceled)
		p.recall(t, c)
		p.works(t, p.AB, "the ep, after a send to no queue")
	}
	assert.Empty(t, mine.got)
	require.NoError(t, mine.q.Close())
	for _, e := range all[1:] {
		assert.NoError(t, e.q.Close())
	}
}

func checkQueueSenders(t checkT, p *pair) {
	const count = 20
	other, back := p.connect(t, p.A, p.B)
	depth := min(count, p.B.Iface.Attr().Queue.MaxDepth)
	ends := []*queueEnd{p.newQueueFor(t, p.BA, depth), p.newQueueFor(t, back, depth)}
	links := []*link{p.AB, other}
	var conns []uct.QueueConn
	for i, e := range ends {
		conns = append(conns, p.attach(t, links[i], e.q.Number()))
	}
	var sends []*queueSend
	for k := range count {
		for i, c := range conns {
			ends[i].post(t, k, 16)
			sends = append(sends, p.sendTo(t, links[i], c, pattern(100*i+k, 16), 1))
		}
		for _, e := range ends {
			e.await(t, k+1)
		}
	}
	for i, e := range ends {
		for k, got := range e.got {
			assert.Equal(t, pattern(100*i+k, 16), got.data, "message %d of ep %d", k, i)
		}
	}
	for _, s := range sends {
		p.ended(t, s, ucs.StatusOK)
	}
	for i, c := range conns {
		p.detach(t, c)
		assert.NoError(t, ends[i].q.Close())
	}
}

func checkQueueOtherPeer(t checkT, p *pair) {
	c := p.open(t, "C", p.A)
	cb, bc := p.connect(t, c, p.B)
	e := p.newQueueFor(t, p.BA, 2)
	e.post(t, 1, 16)
	// First attach and detach a connection to the queue that is for C.
	own := p.newQueueFor(t, bc, 1)
	own.post(t, 2, 16)
	to := p.attach(t, cb, own.q.Number())
	p.ended(t, p.sendTo(t, cb, to, pattern(2, 16), 1), ucs.StatusOK)
	own.await(t, 1)
	p.detach(t, to)
	to = p.attach(t, cb, e.q.Number())
	p.ended(t, p.sendTo(t, cb, to, pattern(3, 16), 1), ucs.StatusCanceled)
	p.recall(t, to)
	p.settle()
	assert.Empty(t, e.got, "the message of another peer")
	assert.Zero(t, e.q.Received())
	mine := p.attach(t, p.AB, e.q.Number())
	p.ended(t, p.sendTo(t, p.AB, mine, pattern(1, 16), 1), ucs.StatusOK)
	e.await(t, 1)
	assert.Equal(t, pattern(1, 16), e.got[0].data)
	p.detach(t, mine)
	p.works(t, cb, "the ep of the other peer")
	assert.NoError(t, own.q.Close())
	assert.NoError(t, e.q.Close())
}

func checkQueueClose(t checkT, p *pair) {
	e := p.newQueue(t, p.B, 4)
	c := p.attach(t, p.AB, e.q.Number())
	one, two := p.sendTo(t, p.AB, c, pattern(1, 16), 1), p.sendTo(t, p.AB, c, pattern(2, 16), 1)
	p.settle()
	p.AB.failed, p.BA.failed = true, true
	require.NoError(t, p.AB.EP.Close())
	p.ended(t, one, ucs.StatusCanceled)
	p.ended(t, two, ucs.StatusCanceled)
	for k := range 3 {
		e.post(t, k, 16)
	}
	p.settle()
	assert.Empty(t, e.got, "sends of an ep that was closed")
	p.closeLink(t, p.BA)
	require.NoError(t, p.B.Iface.Close())
	p.B.Iface = nil
	require.Len(t, e.got, 3)
	for k, got := range e.got {
		assert.Equal(t, received{id: k, data: []byte{}, st: ucs.StatusCanceled}, got)
	}
	p.closeLink(t, p.AB)
}

func checkQueueAllocations(t checkT, p *pair) {
	switch {
	case testenv.RaceEnabled:
		t.Skipf("the race detector allocates")
	case p.h.Engine:
		t.Skipf("goroutines outside the transport transfer the data, and allocate")
	}
	q, err := p.BA.EP.Ops().Queues.NewQueue(2)
	require.NoError(t, err)
	src := []uct.IOV{{Buf: p.A.staged.take(64), Mem: p.A.staged.mem}}
	dst := []uct.IOV{{Buf: p.B.staged.take(64), Mem: p.B.staged.mem}, {Buf: p.B.staged.take(64), Mem: p.B.staged.mem}}
	got, sent := 0, 0
	r := &uct.QueueRecv{Func: func(*uct.QueueRecv) { got++ }}
	done := &uct.Completion{Func: func(*uct.Completion) { sent++ }}
	queues := p.AB.EP.Ops().Queues
	once := func() {
		c, err := queues.Attach(q.Number())
		if err != nil {
			return
		}
		done.Count = 1
		_ = q.Post(r, dst)
		_, _ = c.SendZcopy(src, done)
		for n := sent + 1; sent < n || got < n; {
			p.A.Iface.Progress()
			p.B.Iface.Progress()
		}
		_ = c.Detach()
	}
	for range 10 {
		once()
	}
	require.Equal(t, 10, got)
	assert.Zero(t, testenv.LeastAllocs(100, once))
	require.Equal(t, got, sent)
	assert.NoError(t, q.Close())
}
