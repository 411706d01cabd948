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

// EP is one connection over one Link. A transport that writes work requests itself embeds it and
// uses the exported fields.
type EP struct {
	base.NoGetShort

	QPN              uint32
	state            state
	fenced           bool   // the next work request must carry the fence flag
	listedForCredits bool   // in it.creditReturners
	waiterKind       opKind // opFlush, opAtomic or opSend

	it         *Iface
	send       SendQueue
	PI         uint64 // work requests posted
	CI         uint64 // work requests known to be complete
	Sig        uint64 // PI of the last signaled one
	Room       uint64 // limit of PI-CI for posts; 0: every post calls admit
	NextOp     uint64 // ID of the first completion that calls Retire; NoOp if none
	Credits    int32  // messages that the peer still accepts
	creditsDue uint32 // credits to return to the peer

	lastReadPI    uint64 // PI of the last read or atomic
	lastCompPI    uint64 // PI of the last op with a completion
	opHead        *op
	opTail        *op // the last one; undefined if opHead is nil
	waiter        waiter
	cqSlots       uint32 // reserved CQ slots
	reservedIndex uint32 // index in it.reservers if cqSlots is not 0

	link          Link
	outer         uct.EP // the EP of the user: e, or the type that embeds it
	pending       base.PendingQueue
	next          *EP               // link of it.creditReturners in state ready, of it.releases afterwards
	notifyHandler uct.NotifyHandler // nil: immediate data is dropped
	base.Slot
	stalledPI         uint64        // PI when noCredit last found that credits are missing
	probeAt           time.Duration // earliest time of a post by noCredit, in the clock of timelimit.Now
	window            uint32        // initial credits of the peer
	ownSlot           uint32        // number of the slot of the waiter, if it has one
	peerGrant         int32         // initial credits of this side
	cause             ucs.Status
	disconnectPending bool            // the disconnect message of a closed EP is not yet sent
	inReleaseQueue    bool            // in it.releases
	err               error           // error of posts in all states but ready
	disconnectLimit   timelimit.Limit // time limit of a closed EP for the acknowledgement of its peer
}

// state is the state of an EP.
type state uint8

const (
	stateInit   state = iota // Connect has not been called
	stateReady               // RTS
	stateFailed              // QP in ERR; OnError has been called
	stateClosed              // closed; the QP is destroyed when its work requests are complete, see disconnect
)

var _ uct.EP = (*EP)(nil)

// Ops implements uct.EP.
func (e *EP) Ops() *uct.Ops {
	return &uct.Ops{AM: e, Put: e, Get: e, Atomics: e, Connect: e, Check: e, Notify: e}
}

// NewEP implements uct.Iface. It creates a QP in INIT; Connect connects it. p must be empty.
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

// newLink creates the link of an EP.
func (it *Iface) newLink() (Link, error) {
	if it.links != nil {
		return it.links.NewLink()
	}
	return it.newQPLink()
}

// makeEP makes the driver create the EP, and initializes it.
func (it *Iface) makeEP(link Link) (*EP, error) {
	outer, e, send, err := it.driver.MakeEP(link)
	if err != nil {
		return nil, err
	}
	e.it, e.link, e.send, e.outer, e.QPN = it, link, send, outer, link.Number()
	e.NextOp, e.err = NoOp, ucs.ErrInvalidState
	if it.slots.Free() > it.cfg.TxCQDepth-it.ops.total { // the other slots are for ops
		at, _ := it.slots.Get()
		e.ownSlot = at
		e.waiter.slot, e.waiter.addr = (*[slotLen]byte)(it.slots.Bytes(at)), it.slots.SGE(at, 0, slotLen).Addr
	}
	e.window = uint32(it.cfg.FCWindow)
	return e, nil
}

// setModeration limits the consecutive unsignaled work requests of an EP so that those of all EPs
// use at most half of the CQ slots: idle EPs with unsignaled work requests must not block the
// others. EPs that have more unsignaled work requests from an earlier limit post a signaled one.
func (it *Iface) setModeration() {
	if it.links != nil {
		return // all work requests are signaled: unsignaled ones of an idle EP would occupy places of others in the queue
	}
	before := it.Moderation
	share := it.cfg.TxCQDepth / (2 * max(it.eps.n, 1))
	it.Moderation = uint64(min(it.cfg.Moderation, share))
	if it.Moderation < before {
		it.deferSignals()
	}
}

// EPAddr implements uct.EPConnector.
func (e *EP) EPAddr(b []byte) []byte {
	return e.link.AppendAddr(b, rcwire.EPAddr{
		MTU:      e.it.port.Attr.ActiveMTU,
		MaxReads: uint8(e.it.cfg.MaxRDAtomic),
		SegLen:   uint32(e.it.cfg.SegSize),
		Credits:  uint16(e.window),
	})
}

// Connect implements uct.EPConnector. Errors: ErrInvalidAddr, ErrUnreachable, ErrInvalidState if
// Connect was called before, ErrInvalidParam if the receive buffers of the peer are smaller than
// those of this side.
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
	e.listForCredits() // messages may have arrived before, over a link that other EPs use
	return nil
}

// Close implements uct.EP. Operations in flight complete in a later Progress or in Close of the
// iface: with their own status, or with StatusCanceled after disconnectTimeout. Until then the device
// may access the memory of zero-copy operations.
func (e *EP) Close() error {
	if e.state == stateClosed {
		return nil
	}
	it, was := e.it, e.state
	e.state, e.Room, e.err, e.notifyHandler = stateClosed, 0, it.opError("post", uct.ErrClosed), nil
	it.open.Remove(e)
	it.unlistForCredits(e)
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

// releaseWhenIdle releases the resources of a failed or closed EP when its work requests are
// complete: the CQ slots, and the QP if the EP is closed.
func (e *EP) releaseWhenIdle() {
	it := e.it
	if e.disconnectPending {
		_ = e.trySendDisconnect() // if the post fails, the device flushes the queue
	}
	if e.disconnectPending || e.PI != e.CI || e.opHead != nil || e.waiter.comp != nil {
		e.checkDisconnectLimit()
		e.flushTail()
		return
	}
	it.releaseSlots(e, int(e.cqSlots))
	if e.state == stateClosed && it.closing.Remove(e) {
		it.traffic.Closed(e.PI, 0)
		it.removeEP(e)
		_ = e.link.Close() // the user has closed the EP and cannot handle the error
	}
}

// flushTail ensures a completion after the last work request of a QP in ERR. If that one was
// unsignaled and succeeded before ERR, it generates no completion; flushTail then posts another
// one, which the device flushes.
func (e *EP) flushTail() {
	if e.state >= stateFailed {
		e.NextOp = 0 // every completion calls Retire
	}
	if e.Sig <= e.CI && e.postNop() == uct.ErrNoResource {
		e.it.releases.add(e)
	}
}

// releaseQueue is a FIFO of closed and failed EPs that need a slot in the CQ before their resources can be
// released.
type releaseQueue struct {
	first, last *EP
	n           int
}

func (q *releaseQueue) add(e *EP) {
	e.it.raise(attnDeferred) // runDeferred calls retryReleases
	if e.inReleaseQueue {
		return
	}
	e.inReleaseQueue = true
	if q.first == nil {
		q.first = e
	} else {
		q.last.next = e
	}
	q.last = e
	q.n++
}

func (q *releaseQueue) pop() *EP {
	e := q.first
	q.first = e.next
	q.n--
	e.next, e.inReleaseQueue = nil, false
	return e
}

// retryReleases calls releaseWhenIdle of the queued EPs, while the CQ has slots.
func (it *Iface) retryReleases() {
	for n := it.releases.n; n > 0 && it.HasResources(); n-- {
		it.releases.pop().releaseWhenIdle()
	}
	if it.releases.n > 0 {
		it.raise(attnDeferred)
	}
}

// removeEP removes a closed EP from the tables of the iface.
func (it *Iface) removeEP(e *EP) {
	it.eps.remove(e)
	if slot := &it.recent[uint8(e.QPN)]; *slot == e {
		*slot = &it.eps.vacant
	}
	if e.waiter.addr != 0 {
		it.slots.Put(e.ownSlot)
	}
	it.driver.RemoveEP(e.outer)
	it.setModeration()
}

func (it *Iface) opError(op string, err error) error {
	return &ucs.OpError{TL: it.name, Dev: it.port.Name, Op: op, Err: err}
}
