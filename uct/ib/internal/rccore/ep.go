package rccore

import (
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
)

// EP is one connection over one Link. A transport embeds it to write some work requests
// itself; the exported fields are for that.
type EP struct {
	base.NoGetShort

	QPN       uint32
	state     state
	fenced    bool   // the next work request waits for reads and atomics before it
	dueListed bool   // in it.due
	waits     opKind // of the waiter: opFlush, opAtomic or opSend

	it         *Iface
	send       SendQueue
	PI         uint64 // work requests posted
	CI         uint64 // work requests known to be complete
	Sig        uint64 // PI of the last signaled one
	Room       uint64 // posts pass while PI-CI < Room; 0 makes every post ask admit
	NextOp     uint64 // the first completion that Retire is to look at; NoOp without
	Credits    int32  // messages that the peer still takes in
	creditsDue uint32 // credits to give back to the peer

	reads   uint64 // PI of the last read or atomic
	wanted  uint64 // PI of the last op that somebody waits for
	opHead  *op
	opTail  *op // the last one; meaningless without opHead
	waiter  waiter
	lease   uint32 // CQ slots held
	leaseAt uint32 // the place in it.leases, unless lease is 0

	link    Link
	outer   uct.EP // what the user has: e, or what embeds it
	pending base.PendingQueue
	next    *EP               // in it.due while ready, in it.unsettled later
	words   uct.NotifyHandler // nil: words are dropped
	base.Slot
	stalledPI     uint64        // PI when noCredit last found a new stall
	probeAt       time.Duration // when noCredit may post for this stall, a time of timelimit.Now
	window        uint32        // credits that the peer started with
	ownSlot       uint32        // number of the waiter's, if it has one
	peerGrant     int32         // credits that we started with
	cause         ucs.Status
	noticePending bool            // the peer of a closed EP has not been told
	unsettled     bool            // in it.unsettled
	err           error           // what posts return after a failure or Close
	leaving       timelimit.Limit // a closed EP waits for its peer to take notice
}

// state of an EP.
type state uint8

const (
	stateInit   state = iota // Connect has not been called
	stateReady               // RTS
	stateFailed              // QP in ERR; OnError was called
	stateClosed              // until its work requests are complete, then gone; see disconnect
)

var _ uct.EP = (*EP)(nil)

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops {
	return &uct.Ops{AM: e, Put: e, Get: e, Atomics: e, Connect: e, Check: e, Notify: e}
}

// NewEP implements uct.Iface: it makes a QP in INIT, to be connected by Connect.
// p must be empty.
func (it *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
	if it.closed {
		return nil, it.opError("new ep", uct.ErrClosed)
	}
	if it.cqLost {
		return nil, it.opError("new ep", ErrCQLost)
	}
	if len(p.DeviceAddr) != 0 || len(p.IfaceAddr) != 0 {
		return nil, it.opError("new ep", fmt.Errorf("%w: rc connects endpoints, not ifaces", uct.ErrUnsupported))
	}
	link, err := it.newLink()
	if err != nil {
		return nil, err
	}
	e, err := it.makeEP(link)
	if err != nil {
		return nil, errors.Join(it.opError("new ep", err), link.Close())
	}
	it.ops.grow(it.cfg.TxDepth, it.cfg.TxCQDepth, it.slots)
	it.eps.add(e)
	it.recent[uint8(e.QPN)] = e
	it.open.Add(e)
	it.setModeration()
	return e.outer, nil
}

// newLink makes what is to connect an EP.
func (it *Iface) newLink() (Link, error) {
	if it.links != nil {
		return it.links.NewLink()
	}
	return it.newQPLink()
}

// makeEP has the transport make the EP, and fills it in.
func (it *Iface) makeEP(link Link) (*EP, error) {
	outer, e, send, err := it.driver.MakeEP(link)
	if err != nil {
		return nil, err
	}
	e.it, e.link, e.send, e.outer, e.QPN = it, link, send, outer, link.Number()
	e.NextOp, e.err = NoOp, ucs.ErrInvalidState
	if it.slots.Free() > it.cfg.TxCQDepth-it.ops.total { // what is left is for ops
		at, _ := it.slots.Get()
		e.ownSlot = at
		e.waiter.slot, e.waiter.addr = (*[slotLen]byte)(it.slots.Bytes(at)), it.slots.SGE(at, 0, slotLen).Addr
	}
	e.window = uint32(it.cfg.FCWindow)
	return e, nil
}

// setModeration bounds the work requests without completion so that those of all
// EPs together leave half of the CQ slots: EPs that fall silent behind unsignaled
// work requests do not starve the rest. Those that have posted more, while that was
// allowed, ask for a completion.
func (it *Iface) setModeration() {
	if it.links != nil {
		return // all are signaled: those of a silent EP would keep the places of others
	}
	before := it.Moderation
	share := it.cfg.TxCQDepth / (2 * max(it.eps.n, 1))
	it.Moderation = uint64(min(it.cfg.Moderation, share))
	if it.Moderation < before {
		it.signalLater()
	}
}

// EPAddr implements uct.EPConnector.
func (e *EP) EPAddr(b []byte) []byte {
	return e.link.AppendAddr(b, rcwire.EPAddr{
		MTU:     e.it.port.Attr.ActiveMTU,
		Reads:   uint8(e.it.cfg.MaxRDAtomic),
		SegLen:  uint32(e.it.cfg.SegSize),
		Credits: uint16(e.window),
	})
}

// Connect implements uct.EPConnector. Errors: ErrInvalidAddr, ErrUnreachable,
// ErrInvalidState if it was called before, ErrInvalidParam if the peer's receive
// buffers are shorter than ours.
func (e *EP) Connect(deviceAddr, epAddr []byte) error {
	if e.state != stateInit {
		return e.it.opError("connect", ucs.ErrInvalidState)
	}
	dev, err := e.it.port.Peer(deviceAddr)
	if err != nil {
		return e.it.opError("connect", err)
	}
	peer, err := e.link.ParseAddr(epAddr)
	if err != nil {
		return e.it.opError("connect", err)
	}
	if int(peer.SegLen) < int(e.it.cfg.SegSize) {
		return e.it.opError("connect", fmt.Errorf("%w: the peer's SEG_SIZE %d is below ours, %d",
			uct.ErrInvalidParam, peer.SegLen, e.it.cfg.SegSize))
	}
	if err := e.link.Connect(dev, peer); err != nil {
		return err
	}
	e.state, e.err = stateReady, nil
	e.peerGrant = int32(peer.Credits)
	e.Credits = e.peerGrant
	e.listCredits() // for what has come before, over a link that others use
	return nil
}

// Close implements uct.EP. Operations in flight complete from a later Progress or
// from the iface's Close, as they end, or with StatusCanceled if that takes longer than
// disconnectLimit; the memory of zero-copy operations is the device's until then.
func (e *EP) Close() error {
	if e.state == stateClosed {
		return nil
	}
	it, was := e.it, e.state
	e.state, e.Room, e.err, e.words = stateClosed, 0, it.opError("post", uct.ErrClosed), nil
	it.open.Remove(e)
	it.unlistCredits(e)
	it.arb.Fail(&e.pending)
	it.closing.Add(e)
	var err error
	if was == stateReady {
		err = e.disconnect()
	} else if was == stateFailed && e.PI != e.CI {
		err = e.stop()
	}
	e.releaseWhenIdle()
	return err
}

// releaseWhenIdle gives back what an EP that posts no more holds, once its work requests
// are complete: the CQ slots, and the QP if it is closed.
func (e *EP) releaseWhenIdle() {
	it := e.it
	if e.noticePending {
		_ = e.tellPeer() // what is refused here is flushed
	}
	if e.noticePending || e.PI != e.CI || e.opHead != nil || e.waiter.comp != nil {
		e.leaveInTime()
		e.flushTail()
		return
	}
	it.returnLease(e, int(e.lease))
	if e.state == stateClosed && it.closing.Remove(e) {
		it.forget(e)
		// Nothing is left to report to: the QP is gone for us either way.
		_ = e.link.Close()
	}
}

// flushTail makes sure that a completion comes for the last work request of a QP
// in ERR. One that is not signaled and had succeeded before gets none, so another
// one goes behind it, which the device flushes.
func (e *EP) flushTail() {
	if e.state >= stateFailed {
		e.NextOp = 0 // every completion settles
	}
	if e.Sig <= e.CI && e.postNop() == uct.ErrNoResource {
		e.it.unsettled.add(e)
	}
}

// settleQueue is the closed and failed EPs that need a slot in the CQ to settle, in the order in which they
// asked for it.
type settleQueue struct {
	first, last *EP
	n           int
}

func (q *settleQueue) add(e *EP) {
	e.it.raise(attnBacklog) // finish tries again
	if e.unsettled {
		return
	}
	e.unsettled = true
	if q.first == nil {
		q.first = e
	} else {
		q.last.next = e
	}
	q.last = e
	q.n++
}

func (q *settleQueue) take() *EP {
	e := q.first
	q.first = e.next
	q.n--
	e.next, e.unsettled = nil, false
	return e
}

// settleUnsettled settles EPs while the CQ has slots.
func (it *Iface) settleUnsettled() {
	for n := it.unsettled.n; n > 0 && it.HasResources(); n-- {
		it.unsettled.take().releaseWhenIdle()
	}
	if it.unsettled.n > 0 {
		it.raise(attnBacklog)
	}
}

// forget takes a closed EP out of the tables.
func (it *Iface) forget(e *EP) {
	it.eps.remove(e)
	if slot := &it.recent[uint8(e.QPN)]; *slot == e {
		*slot = &it.eps.vacant
	}
	if e.waiter.addr != 0 {
		it.slots.Put(e.ownSlot)
	}
	it.driver.Forget(e.outer)
	it.setModeration()
}

func (it *Iface) opError(op string, err error) error {
	return &ucs.OpError{TL: it.name, Dev: it.port.Name, Op: op, Err: err}
}
