package xrccore

import (
	"errors"
	"math/rand/v2"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

var logger = log.For("xrc")

// link is the state of the connection of an initiator to its target.
type link uint8

const (
	linkDown       link = iota // no QP, or it is not connected and need not be
	linkRequestDue             // the request message must be sent
	linkRequested              // the request message was sent
	linkUp                     // RTS; or ERR, if broken
)

// conn is an XRC initiator that sends to the queues of the peer, to one queue at a time.
type conn struct {
	e        *queueEP
	index    uint8
	attached bool
	link     link
	inErr    bool   // the QP is in ERR
	number   uint32 // of the queue that the user has attached to
	id       uint32 // in it.conns
	qp       *verbs.QP
	queue    rccore.SendQueue // of qp
	psn      uint32
	sends    []send // a ring
	head     uint64 // index of the oldest send
	posted   uint64 // index of the first send that the device does not have
	tail     uint64 // index after the newest send
	recall   *uct.Completion
	wr       [1]verbs.SendWR
}

// send is a send that is not complete.
type send struct {
	comp *uct.Completion
	sges []verbs.SGE
}

var _ uct.QueueConn = (*conn)(nil)

// open creates the QP, if there is none, and starts to connect it.
func (c *conn) open() error {
	it := c.e.it
	if c.qp == nil {
		if it.cqFree < it.cfg.QueueTxDepth {
			return uct.ErrBusy
		}
		if err := c.create(); err != nil {
			return it.opError("create initiator", err)
		}
	}
	if c.link == linkDown {
		c.requestConnect()
	}
	return nil
}

func (c *conn) create() (err error) {
	it, maxIOV := c.e.it, c.e.it.limits.MaxIOV
	c.qp, err = it.MD().PD().CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeXRCSend, SendCQ: it.VerbsCQ(),
		Cap: verbs.QPCap{MaxSendWR: it.cfg.QueueTxDepth, MaxSendSGE: maxIOV}})
	if err != nil {
		return err
	}
	if c.queue, err = it.poster.OpenSend(c.qp); err != nil {
		err = errors.Join(err, c.qp.Close())
		c.qp = nil
		return err
	}
	it.cqFree -= it.cfg.QueueTxDepth
	c.id = it.conns.add(c)
	c.wr[0] = verbs.SendWR{ID: sendID(c.id), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
	if c.sends == nil {
		c.sends = make([]send, it.cfg.QueueTxDepth)
		store := make([]verbs.SGE, maxIOV*len(c.sends))
		for i := range c.sends {
			c.sends[i].sges = store[i*maxIOV : i*maxIOV : (i+1)*maxIOV]
		}
	}
	return nil
}

// requestConnect makes the next Progress move the QP to INIT and send a request message.
func (c *conn) requestConnect() {
	c.link, c.inErr, c.psn = linkRequestDue, false, rand.Uint32()&0xffffff
	c.e.it.schedule(c.e.task)
}

func (c *conn) at(i uint64) *send { return &c.sends[i%uint64(len(c.sends))] }

// SendZcopy implements uct.QueueConn.
func (c *conn) SendZcopy(iov []uct.IOV, done *uct.Completion) (pending bool, err error) {
	it := c.e.it
	q := it.limits
	if len(iov) > q.MaxIOV || uct.IOVLen(iov) > q.MaxMessage {
		return false, uct.ErrTooLong
	}
	if !c.e.Ready() {
		return false, c.e.Err()
	}
	if c.tail-c.head == uint64(len(c.sends)) {
		return false, uct.ErrNoResource
	}
	s := c.at(c.tail)
	sges, ok := it.MD().SGEs(s.sges[:0], iov)
	if !ok {
		return false, uct.ErrInvalidParam
	}
	s.sges, s.comp = sges, done
	c.tail++
	switch c.link {
	case linkUp:
		c.post()
	case linkDown: // the peer had no target; the next Attach sends another request
		it.schedule(c.e.task)
	}
	return true, nil
}

// post posts the sends that the device does not have. In ERR the device flushes them.
func (c *conn) post() {
	for ; c.posted != c.tail; c.posted++ {
		c.wr[0].SGList, c.wr[0].SRQN = c.at(c.posted).sges, c.number
		if _, err := c.queue.PostSend(c.wr[:]); err != nil {
			logger.Error("post to a receive queue", "device", c.e.it.Port().Name, "qpn", c.qp.Number(), "reason", err)
			c.link = linkDown // the state of the device is unknown; work cancels the other sends
			c.stop()
			c.e.it.schedule(c.e.task)
			return
		}
	}
}

// handleCompletion completes the oldest send.
func (c *conn) handleCompletion(wc *verbs.WC) {
	st := ucs.StatusOK
	if wc.Status != verbs.WCSuccess {
		st = status(wc)
		c.inErr = true
	}
	c.pop().Complete(st)
	c.finishWhenIdle()
}

// pop removes the oldest send from the ring.
func (c *conn) pop() *uct.Completion {
	s := c.at(c.head)
	c.head++
	done := s.comp
	s.comp = nil
	return done
}

// idle reports whether all sends are complete.
func (c *conn) idle() bool { return c.head == c.tail }

// finishWhenIdle completes a recall, and closes the connection of a closed EP, when nothing is in flight.
func (c *conn) finishWhenIdle() {
	if c.link == linkDown {
		c.cancelUnposted()
	}
	if !c.idle() {
		return
	}
	if done := c.recall; done != nil {
		c.recall = nil
		c.release()
		done.Complete(c.e.it.cancelStatus(ucs.StatusOK))
	}
	if c.e.closed && c.qp != nil {
		c.close()
	}
}

// cancelUnposted cancels the unposted sends. While a posted send is outstanding it does nothing.
func (c *conn) cancelUnposted() (n int) {
	if c.head != c.posted {
		return 0 // posted sends complete first
	}
	for unposted := int(c.tail - c.posted); n < unposted; n++ {
		c.posted++
		c.pop().Complete(ucs.StatusCanceled)
	}
	return n
}

// Recall implements uct.QueueConn.
func (c *conn) Recall(done *uct.Completion) (pending bool, err error) {
	if !c.e.Ready() {
		return false, c.e.Err()
	}
	c.cancelUnposted()
	if c.idle() {
		c.release()
		return false, nil
	}
	if err := c.toERR(); err != nil {
		return false, err
	}
	c.recall = done
	return true, nil
}

// toERR makes the device flush the sends in flight.
func (c *conn) toERR() error {
	if c.inErr && c.qp.State() == verbs.QPStateErr {
		return nil
	}
	c.inErr = true
	if err := c.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPMaskState); err != nil {
		return c.e.it.opError("modify initiator to ERR", err)
	}
	return nil
}

// Detach implements uct.QueueConn.
func (c *conn) Detach() error {
	if !c.idle() {
		return uct.ErrBusy
	}
	c.release()
	return nil
}

// release detaches the connection. If it is in ERR, it starts to connect again.
func (c *conn) release() {
	c.attached, c.number = false, 0
	if c.inErr && c.e.Ready() {
		c.requestConnect()
	}
}

// stop flushes the sends in flight of a failed or closed EP.
func (c *conn) stop() {
	if c.qp != nil && c.head != c.posted {
		_ = c.toERR() // if the device refuses, it flushes nothing either; Close has a time limit
	}
}

// close destroys the QP of a closed EP.
func (c *conn) close() {
	it := c.e.it
	it.conns.remove(c.id)
	it.closing--
	it.cqFree += it.cfg.QueueTxDepth
	_ = c.qp.Close() // the user has closed the EP and cannot handle the error
	it.poster.CloseSend(c.queue)
	c.qp, c.queue, c.link = nil, nil, linkDown
}

// work sends the request message if it is due. On a failed or closed EP it cancels the unposted sends.
func (c *conn) work() (n int) {
	switch {
	case !c.e.Ready() || c.link == linkDown:
		n = c.cancelUnposted()
		c.finishWhenIdle()
	case c.link == linkRequestDue:
		n = c.sendRequest()
	}
	return n
}

// sendRequest moves the QP to INIT and sends its QPN in a request message.
func (c *conn) sendRequest() int {
	if err := c.toInit(); err != nil {
		logger.Error("initiator", "device", c.e.it.Port().Name, "reason", err)
		c.link = linkDown
		return c.cancelUnposted()
	}
	m := message{kind: kindRequest, conn: c.index, mtu: c.e.mtu, qpn: c.qp.Number(), psn: c.psn}
	if c.e.SendControl(m.encode()) != nil {
		c.e.it.schedule(c.e.task)
		return 0
	}
	c.link = linkRequested
	return 1
}

// toInit moves the QP from any state to INIT.
func (c *conn) toInit() error {
	if c.qp.State() != verbs.QPStateReset {
		if err := c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState); err != nil {
			return err
		}
		c.e.it.poster.ResetSend(c.queue)
	}
	return c.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: c.e.it.Port().Num},
		verbs.QPMaskState|verbs.QPMaskPKeyIndex|verbs.QPMaskPort|verbs.QPMaskAccessFlags)
}

// handleReply handles the reply of the peer. It returns false if no request is outstanding.
func (c *conn) handleReply(m message) bool {
	if c.link != linkRequested {
		return false
	}
	if m.qpn == 0 {
		c.link = linkDown // the next Attach tries again
		c.cancelUnposted()
		c.finishWhenIdle()
		return true
	}
	if err := c.toRTS(m.qpn); err != nil {
		logger.Error("initiator", "device", c.e.it.Port().Name, "reason", err)
		return false
	}
	c.link = linkUp
	c.post()
	return true
}

// toRTS connects the QP to its target. It retries without limit if no receive is posted.
func (c *conn) toRTS(target uint32) error {
	port, cfg := c.e.it.Port(), c.e.it.Config()
	err := c.qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTR, AH: port.AH(c.e.peer), PathMTU: c.e.mtu, DestQPN: target, RQPSN: 0,
	}, verbs.QPMaskState|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN)
	if err != nil {
		return err
	}
	return c.qp.Modify(verbs.QPAttr{
		State: verbs.QPStateRTS, Timeout: ibport.AckTimeoutCode(cfg.Timeout), RetryCnt: uint8(cfg.RetryCount),
		RNRRetry: verbs.RNRForever, SQPSN: c.psn, MaxRDAtomic: 1,
	}, verbs.QPMaskState|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|
		verbs.QPMaskSQPSN|verbs.QPMaskMaxRDAtomic)
}

// cancelAfterCQError completes the sends of a failed or closed EP with StatusIOError after an error of the completion
// queue.
func (c *conn) cancelAfterCQError() {
	_ = c.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState) // if the device refuses, the whole device has failed
	c.e.it.poster.ResetSend(c.queue)
	c.link, c.posted = linkDown, c.tail
	for !c.idle() {
		c.pop().Complete(ucs.StatusIOError)
	}
	c.finishWhenIdle()
}
