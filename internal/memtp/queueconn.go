package memtp

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// queueConns is the number of queue connections of an EP. It is small, so that tests use all of them.
const queueConns = 2

// queueConn carries the sends of an EP to one queue.
type queueConn struct {
	e      *EP
	number uint32 // number of the queue; 0 if the connection is not attached
	tx     tx
	broken bool // Progress completes all sends with StatusCanceled
}

func (e *EP) initConns() {
	for k := range e.conns {
		c := &e.conns[k]
		c.e, c.tx.ops = e, make([]op, e.iface.conf.TxDepth+1) // one more for Recall
	}
}

// Attach implements uct.QueueSender.
func (e *EP) Attach(number uint32) (uct.QueueConn, error) {
	if err := e.works(); err != nil {
		return nil, err
	}
	for k := range e.conns {
		if c := &e.conns[k]; c.number == 0 {
			c.number, c.broken = number, false
			return c, nil
		}
	}
	return nil, uct.ErrBusy
}

// works returns the error of a send on a closed or failed EP, or nil.
func (e *EP) works() error {
	switch {
	case e.failure != ucs.StatusOK:
		return e.refusal
	case e.closed:
		return uct.ErrClosed
	}
	return nil
}

// SendZcopy implements uct.QueueConn.
func (c *queueConn) SendZcopy(iov []uct.IOV, done *uct.Completion) (pending bool, err error) {
	if len(iov) > maxIOV || uct.IOVLen(iov) > maxQueued {
		return false, uct.ErrTooLong
	}
	if !covered(iov, 0) {
		return false, uct.ErrInvalidParam
	}
	if err := c.e.works(); err != nil {
		return false, err
	}
	if c.tx.n == c.e.iface.conf.TxDepth {
		return false, uct.ErrNoResource
	}
	c.tx.push(opSend, done).setIOV(iov)
	return true, nil
}

// Recall implements uct.QueueConn. Sends in the ring have not been received.
func (c *queueConn) Recall(done *uct.Completion) (pending bool, err error) {
	if err := c.e.works(); err != nil {
		return false, err
	}
	if c.tx.n == 0 {
		c.number = 0
		return false, nil
	}
	c.broken = true // the next Progress completes all sends
	c.tx.push(opRecall, done)
	return true, nil
}

// Detach implements uct.QueueConn.
func (c *queueConn) Detach() error {
	if c.tx.n > 0 {
		return uct.ErrBusy
	}
	c.number = 0
	return nil
}

// sending reports whether a send to a queue is outstanding.
func (e *EP) sending() bool {
	for k := range e.conns {
		if e.conns[k].tx.n > 0 {
			return true
		}
	}
	return false
}

// canSend reports whether Progress would complete a send to a queue. The caller holds world.mu.
func (e *EP) canSend() bool {
	for k := range e.conns {
		if c := &e.conns[k]; c.tx.n > 0 && c.step() != stepWaits {
			return true
		}
	}
	return false
}

// sendStep is the next step of the first send of a connection.
type sendStep uint8

const (
	stepWaits      sendStep = iota
	stepHasReceive          // the queue has a receive for it
	stepFails               // there is no queue
)

// step returns the next step of the first send. The caller holds world.mu.
func (c *queueConn) step() sendStep {
	e := c.e
	if c.broken {
		return stepFails
	}
	if e.peer == nil || e.conn && !e.connected() {
		return stepWaits
	}
	q := e.iface.world.queues[c.number]
	switch {
	case q == nil || q.iface != e.peer || q.e.peer != e.iface || q.stopped:
		return stepFails
	case q.waits():
		return stepHasReceive
	}
	return stepWaits
}

// progressSends executes up to perRound sends to queues for each connection.
func (e *EP) progressSends() int {
	n := 0
	for k := range e.conns {
		c := &e.conns[k]
		for range perRound {
			if c.tx.n == 0 || !c.advance() {
				break
			}
			n++
		}
	}
	return n
}

// advance completes the first send and returns true, or returns false if the send waits for a receive.
func (c *queueConn) advance() bool {
	w := c.e.iface.world
	w.mu.Lock()
	step, st := c.step(), ucs.StatusOK
	switch {
	case step == stepWaits:
		w.mu.Unlock()
		return false
	case c.tx.head().kind == opRecall:
		c.number = 0
	case step == stepHasReceive:
		w.queues[c.number].deliver(c.tx.head())
	case step == stepFails:
		c.broken, st = true, ucs.StatusCanceled
	}
	w.mu.Unlock()
	if done := c.tx.pop(); done != nil {
		done.Complete(st)
	}
	return true
}

// completeSends completes all sends to queues of a closed or failed EP.
func (e *EP) completeSends(st ucs.Status) {
	for k := range e.conns {
		for c := &e.conns[k]; c.tx.n > 0; {
			if done := c.tx.pop(); done != nil {
				done.Complete(st)
			}
		}
	}
}
