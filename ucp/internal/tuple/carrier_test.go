package tuple

import (
	"os"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// carrier is a transport of queues in which each step is a call.
type carrier struct {
	byNumber map[uint32]*fakeQueue
	last     uint32
	conns    []*fakeConn
	toSend   []func() // completions that the sender polls, in order
	toRecv   []func() // completions that the receiver polls, in order
	prompt   bool     // receives and sends that Stop and Recall cancel complete in the call, not in a poll
	unsure   bool     // received messages that were not reported yet complete as recalled
}

func newCarrier() *carrier { return &carrier{byNumber: map[uint32]*fakeQueue{}} }

const (
	fakeConns = 2 // of a connection
	fakeDepth = 3 // sends of a connection, and receives of a queue
)

// fakeQueue is a queue of the receiver.
type fakeQueue struct {
	c      *carrier
	number uint32
	posted []*uct.QueueRecv
	iov    [][]uct.IOV
	got    uint64
	told   uint64
	inside bool // a peer is in the middle of a message
	ended  bool // no message begins any more
	closed bool
}

func (c *carrier) makeQueue() *fakeQueue {
	c.last++
	q := &fakeQueue{c: c, number: c.last}
	c.byNumber[q.number] = q
	return q
}

func (q *fakeQueue) Number() uint32   { return q.number }
func (q *fakeQueue) Received() uint64 { return q.told }
func (q *fakeQueue) Close() error     { q.closed = true; delete(q.c.byNumber, q.number); return nil }

func (q *fakeQueue) Post(r *uct.QueueRecv, iov []uct.IOV) error {
	switch {
	case q.ended:
		return uct.ErrClosed
	case len(q.posted) == fakeDepth:
		return uct.ErrNoResource
	}
	q.posted, q.iov = append(q.posted, r), append(q.iov, iov)
	return nil
}

func (q *fakeQueue) Stop() error {
	first := !q.ended
	q.ended = true
	if q.inside {
		return &ucs.InUseError{PIDs: []int{os.Getpid()}}
	}
	if first || len(q.posted) > 0 {
		q.giveBack()
	}
	return nil
}

// giveBack completes the receives without a message.
func (q *fakeQueue) giveBack() {
	posted := q.posted
	q.posted, q.iov = nil, nil
	end := func() {
		for _, r := range posted {
			r.Len, r.Status = 0, ucs.StatusCanceled
			r.Func(r)
		}
	}
	if q.c.prompt && len(q.c.toRecv) == 0 {
		end()
	} else {
		q.c.toRecv = append(q.c.toRecv, end)
	}
}

// fill gives the first receive the message of a send.
func (q *fakeQueue) fill(iov []uct.IOV) {
	r, dst := q.posted[0], q.iov[0]
	q.posted, q.iov = q.posted[1:], q.iov[1:]
	n := uct.IOVLen(iov)
	if len(iov) > 0 {
		src := iov[0].Buf
		for _, d := range dst {
			src = src[copy(d.Buf, src):]
		}
	}
	q.got++
	q.c.toRecv = append(q.c.toRecv, func() {
		q.told++
		r.Len, r.Status = n, ucs.StatusOK
		r.Func(r)
	})
}

// fakeConn is a connection of the sender to a queue.
type fakeConn struct {
	c      *carrier
	number uint32 // 0: not attached
	sends  []fakeSend
	busy   int           // sends whose completions have not been polled
	told   []*ucs.Status // these completions
	broken bool
}

type fakeSend struct {
	iov  []uct.IOV
	done *uct.Completion
}

// Attach implements uct.QueueSender.
func (c *carrier) Attach(number uint32) (uct.QueueConn, error) {
	for _, x := range c.conns {
		if x.number == 0 {
			x.number, x.broken = number, false
			return x, nil
		}
	}
	if len(c.conns) == fakeConns {
		return nil, uct.ErrBusy
	}
	x := &fakeConn{c: c, number: number}
	c.conns = append(c.conns, x)
	return x, nil
}

func (x *fakeConn) SendZcopy(iov []uct.IOV, done *uct.Completion) (bool, error) {
	if x.busy == fakeDepth {
		return false, uct.ErrNoResource
	}
	x.busy++
	x.sends = append(x.sends, fakeSend{iov, done})
	return true, nil
}

func (x *fakeConn) Recall(done *uct.Completion) (bool, error) {
	if x.busy == 0 {
		x.number = 0
		return false, nil
	}
	x.cut(ucs.StatusCanceled)
	x.c.toSend = append(x.c.toSend, func() { x.number = 0; done.Complete(ucs.StatusOK) })
	return true, nil
}

func (x *fakeConn) Detach() error {
	if x.busy > 0 {
		return uct.ErrBusy
	}
	x.number = 0
	return nil
}

// cut fails all sends that were not received.
func (x *fakeConn) cut(st ucs.Status) {
	x.broken = true
	for _, told := range x.told {
		if x.c.unsure {
			*told = st
		}
	}
	sends, now := x.sends, x.c.prompt && len(x.c.toSend) == 0
	x.sends = nil
	for _, s := range sends {
		x.end(s, st)
	}
	if now { // a send may call Recall, so it completes after the others
		for range sends {
			poll(&x.c.toSend)
		}
	}
}

// end completes a send when the sender polls.
func (x *fakeConn) end(s fakeSend, st ucs.Status) {
	x.told = append(x.told, &st)
	x.c.toSend = append(x.c.toSend, func() {
		x.busy--
		x.told = x.told[1:]
		s.done.Complete(st)
	})
}

// carry makes a connection deliver its first message, if it can, and reports whether it did anything.
func (x *fakeConn) carry() bool {
	if len(x.sends) == 0 {
		return false
	}
	q := x.c.byNumber[x.number]
	switch {
	case q == nil || q.ended || x.broken:
		x.cut(ucs.StatusCanceled)
		return true
	case len(q.posted) == 0 || q.inside:
		return false
	}
	s := x.sends[0]
	x.sends = x.sends[1:]
	q.fill(s.iov)
	x.end(s, ucs.StatusOK)
	return true
}

// poll runs the first completion.
func poll(list *[]func()) bool {
	if len(*list) == 0 {
		return false
	}
	f := (*list)[0]
	*list = (*list)[1:]
	f()
	return true
}
