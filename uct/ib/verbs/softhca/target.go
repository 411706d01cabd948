package softhca

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/ring"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/xrcdomain"
)

// A target in a shared domain belongs to no device. Its entry is in the directory of the
// domain, where all members and its initiator look. Each device that gets packets over it
// has a responder of its own, a queuePair: one that has opened it, or one that is made for
// the first packet and has no user. A responder takes over from the entry what others have
// changed; see sync.

// CreateTarget implements prm.XRCHardware. In a shared domain it waits for members that
// change the directory, and so do OpenTarget and DestroyQP.
func (h *hca) CreateTarget(xrcdn uint32) (handle, qpn uint32, err error) {
	h.owner.Reclaim()
	d := h.useDomain(xrcdn)
	if d == nil {
		return 0, 0, ucs.ErrInvalidParam
	}
	if d.dir != nil {
		if qpn, err = d.dir.AddQP(); err != nil {
			h.releaseDomain(d)
			return 0, 0, err
		}
	}
	qp, err := h.addTarget(d, qpn)
	if err != nil {
		h.releaseDomain(d)
		return 0, 0, d.releaseTarget(qpn, err)
	}
	return qp.handle, qp.qpn, nil
}

// addTarget makes a target in RESET that this device refers to.
func (h *hca) addTarget(d *xrcDomain, number uint32) (*queuePair, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	qp, err := h.newTarget(d, number)
	if err != nil {
		return nil, err
	}
	qp.refs = 1
	h.showQP(qp)
	return qp, nil
}

// releaseTarget releases a reference in the directory that is not used because of err.
func (d *xrcDomain) releaseTarget(qpn uint32, err error) error {
	if d.dir != nil {
		_, e := d.dir.CloseQP(qpn)
		err = errors.Join(err, e)
	}
	return err
}

// useDomain is the domain with a number, which is not closed until releaseDomain; nil if
// there is none.
func (h *hca) useDomain(xrcdn uint32) *xrcDomain {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.xrcds.get(xrcdn)
	if d != nil {
		d.users++
	}
	return d
}

func (h *hca) releaseDomain(d *xrcDomain) {
	h.mu.Lock()
	d.users--
	h.mu.Unlock()
}

// newTarget makes a responder of a target in a domain. number is that of a target in a
// shared domain. mu is held.
func (h *hca) newTarget(d *xrcDomain, number uint32) (*queuePair, error) {
	qp, err := h.newQP(verbs.QPTypeXRCRecv)
	if err != nil {
		return nil, err
	}
	qp.domain = d
	qp.withoutQueues()
	if d.dir == nil {
		qp.entry.XRCDN.Store(d.xrcdn)
		return qp, nil
	}
	qp.qpn, qp.serial, qp.entry = number, d.dir.Serial(number), table.TargetEntry(&d.dir.View, number)
	h.targets.add(qp)
	h.qps.slot.Store(qp.handle%table.MaxQP, qp)
	return qp, nil
}

// OpenTarget implements prm.XRCHardware.
func (h *hca) OpenTarget(xrcdn, qpn uint32) (handle uint32, err error) {
	d := h.useDomain(xrcdn)
	if d == nil {
		return 0, ucs.ErrInvalidParam
	}
	if d.dir != nil {
		handle, err = h.openShared(d, qpn)
	} else {
		handle, err = h.openPrivate(d, qpn)
	}
	if err != nil {
		h.releaseDomain(d)
	}
	return handle, err
}

func (h *hca) openPrivate(d *xrcDomain, qpn uint32) (handle uint32, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	qp := h.qps.find(qpn)
	if qp == nil || qp.domain != d || qp.refs <= 0 {
		return 0, fmt.Errorf("target %#x is not in the domain: %w", qpn, ucs.ErrInvalidParam)
	}
	qp.refs++
	return qp.handle, nil
}

// openShared refers to a target of a shared domain, and has a responder for it.
func (h *hca) openShared(d *xrcDomain, qpn uint32) (handle uint32, err error) {
	if err := d.dir.OpenQP(qpn); err != nil {
		return 0, err
	}
	qp, err := h.useResponder(d, qpn)
	if err != nil {
		return 0, d.releaseTarget(qpn, err)
	}
	return qp.handle, nil
}

// useResponder is the responder of a target, with one reference more; a new one if there is
// none.
func (h *hca) useResponder(d *xrcDomain, number uint32) (qp *queuePair, err error) {
	h.driving.Lock() // no packet creates one meanwhile
	defer h.driving.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	qp = h.targets.find(number, func(qp *queuePair) bool { return qp.domain == d && !qp.replaced() })
	if qp == nil {
		if qp, err = h.newTarget(d, number); err != nil {
			return nil, err
		}
	}
	qp.refs++
	return qp, nil
}

// dropRef takes one reference to an XRC target back, and reports whether it was the last of
// the domain. Of another QP it does nothing: it has one. A responder without references
// stays for what is sent to queues of this device.
func (h *hca) dropRef(qp *queuePair) (last bool, err error) {
	if qp.domain == nil {
		return true, nil
	}
	if qp.isShared() {
		if last, err = qp.domain.dir.CloseQP(qp.qpn); err != nil {
			return false, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	qp.domain.users--
	qp.refs--
	if last = last || qp.refs == 0 && !qp.isShared(); last {
		qp.refs = -1 // no other thread drops it
	}
	return last, nil
}

// isShared reports whether the QP is a target in a domain that other devices can be in.
func (qp *queuePair) isShared() bool { return qp.domain != nil && qp.domain.dir != nil }

// replaced reports whether the entry of a target in a shared domain is not its own any more: it
// may have the number again.
func (qp *queuePair) replaced() bool {
	return qp.isShared() && (qp.entry.Destroyed(qp.qpn) || qp.domain.dir.Serial(qp.qpn) != qp.serial)
}

// sync takes over what other members have made of a target in a shared domain. driving is
// held, and exec is not, or nobody else executes the QP.
func (qp *queuePair) sync() {
	if !qp.isShared() || qp.replaced() {
		return
	}
	e := qp.entry
	w := e.Load()
	if w.Epoch() != qp.epoch {
		qp.abortOpen()
		qp.epoch = w.Epoch()
		qp.resp = responder{msn: e.RQPSN.Load()}
	}
	qp.attr.AccessFlags = verbs.Access(e.Access.Load())
	qp.attr.MinRNRTimer = uint8(e.RNRTimer.Load())
	qp.attr.PathMTU = verbs.MTU(e.PathMTU.Load())
	if s := w.State(); qp.state.Swap(uint32(s)) != uint32(s) && s == verbs.QPStateErr {
		qp.abortOpen()
	}
}

// setShared changes the state of a target in a shared domain. False if another member has
// reset or connected it since sync, so that this is about a connection that is over, or has
// changed its state so that it does not go on to this one. driving is held.
func (qp *queuePair) setShared(to verbs.QPState) bool {
	for range table.StateTries {
		w := qp.entry.Load()
		if to != verbs.QPStateReset && (w.Epoch() != qp.epoch || !qp.service.Allows(w.State(), to)) {
			return false
		}
		if to == verbs.QPStateReset || to == verbs.QPStateRTR {
			qp.entry.Fault.Store(0)
		}
		if qp.entry.Change(w, to) {
			qp.epoch = w.To(to).Epoch()
			return true
		}
	}
	return false
}

// receiveArrived handles the messages that have arrived over an XRC target that stops receiving. It
// is called before the target is connected to another initiator, or destroyed: the sender takes
// these messages for delivered.
func (qp *queuePair) receiveArrived() {
	h := qp.hca
	if qp.domain == nil || h.port == nil {
		return
	}
	h.driving.Lock()
	defer h.driving.Unlock()
	for _, l := range *h.inbound.Load() {
		for end := l.req.Ctl.Tail.Load(); int64(end-l.req.Head) > 0 && l.drainRequests(); {
		}
	}
}

// notifyMembers makes the other devices that refer to a target check its entry, which is in ERR.
// Those of stopped processes check it when they continue.
func (h *hca) notifyMembers(d *xrcDomain, e *table.QP, t verbs.EventType) {
	e.Fault.Store(uint32(t))
	if others := d.dir.Others(e.QPN.Load()); len(others) > 0 {
		h.dials.Go(func() { xrcdomain.Call(d.key, others) })
	}
}

// lookAtFaults reports the faults of targets in a domain that other devices have found. It runs
// on the goroutine of the domain.
func (h *hca) reportFaults(d *xrcDomain) {
	h.driving.Lock()
	defer h.driving.Unlock()
	h.eachQP(func(qp *queuePair) {
		if qp.domain == d && !qp.replaced() {
			qp.reportFault()
		}
	})
}

// reportFault reports a fault of a target in a shared domain, once. driving is held.
func (qp *queuePair) reportFault() {
	word := qp.entry.Fault.Load()
	if word == 0 || qp.entry.Load().State() != verbs.QPStateErr {
		return
	}
	if qp.sync(); !qp.resp.userNotified {
		qp.resp.userNotified = true
		qp.hca.raise(targetFault(word), qp.handle)
	}
}

// targetFault is the event in the entry of a target. What no device writes there, such as one of
// a completion queue with the number, reads as a refusal: others can write to the directory.
func targetFault(word uint32) verbs.EventType {
	switch word {
	case uint32(verbs.EventQPFatal), uint32(verbs.EventQPAccessErr):
		return verbs.EventType(word)
	}
	return verbs.EventQPReqErr
}

// targetTable finds the responders of targets in shared domains by number, without a lock.
// Several can have one number: the targets of different domains.
//
// Those whose targets are no more stay until there are twice as many as the last time that all
// were looked at, or a number is wanted and none is left. Where that finds none to drop, it is not
// done again for as many packets as there are responders: so a packet costs no look at each.
type targetTable struct {
	mu     sync.Mutex // for changes
	n      int
	bucket [targetBuckets]atomic.Pointer[queuePair]

	// Under driving.
	left  int // that the last look has left
	skips int // packets that find no number before there is another look
}

// fewTargets is how many are not worth a look.
const sweepMin = 64

func (t *targetTable) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// many reports that so many were added since the last look that another one is due.
func (t *targetTable) sweepDue() bool { return t.size() >= 2*t.left+sweepMin }

// look reports that there is to be a look as no number is left.
func (t *targetTable) maySweep() bool {
	if t.skips > 0 {
		t.skips--
		return false
	}
	return true
}

// dropped notes what a look has left of so many.
func (t *targetTable) swept(before int) {
	if t.left = t.size(); t.left == before {
		t.skips = t.left
	}
}

// each calls f with every one, which may remove it.
func (t *targetTable) each(f func(*queuePair)) {
	for i := range t.bucket {
		for qp := t.bucket[i].Load(); qp != nil; qp = qp.next.Load() {
			f(qp)
		}
	}
}

// targetBuckets is so many that what a process has of targets is hardly ever two in one.
const targetBuckets = 1 << 10

// find returns the one with a number that match takes.
func (t *targetTable) find(number uint32, match func(*queuePair) bool) *queuePair {
	for qp := t.bucket[number%targetBuckets].Load(); qp != nil; qp = qp.next.Load() {
		if qp.qpn == number && match(qp) {
			return qp
		}
	}
	return nil
}

func (t *targetTable) add(qp *queuePair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	head := &t.bucket[qp.qpn%targetBuckets]
	qp.next.Store(head.Load())
	head.Store(qp)
}

// remove takes one out; who has found it goes on from there.
func (t *targetTable) remove(qp *queuePair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := &t.bucket[qp.qpn%targetBuckets]; at.Load() != nil; at = &at.Load().next {
		if at.Load() == qp {
			at.Store(qp.next.Load())
			t.n--
			return
		}
	}
}

// receiver is the QP that a packet is for; nil if there is none.
func (l *inLink) receiver(pkt *ring.Packet) *queuePair {
	if pkt.DstQPN&xrcdomain.NumberBit == 0 {
		return l.hca.qps.find(pkt.DstQPN)
	}
	for qp := l.hca.targets.bucket[pkt.DstQPN%targetBuckets].Load(); qp != nil; qp = qp.next.Load() {
		if qp.qpn == pkt.DstQPN && !qp.replaced() && qp.entry.From(pkt.SrcQPN, &l.gid) {
			qp.sync()
			return qp
		}
	}
	return l.addResponder(pkt)
}

// addResponder makes a responder for the first packet that a peer has sent over a target in
// a shared domain; nil if there is no such target: that takes a look at each domain, and at
// no QP, since a peer may send any number. driving is held.
func (l *inLink) addResponder(pkt *ring.Packet) *queuePair {
	h := l.hca
	d := l.domainOf(pkt)
	if d == nil {
		return nil
	}
	if h.targets.sweepDue() {
		h.dropReplaced()
	}
	qp := h.tryResponder(d, pkt.DstQPN)
	if qp == nil && h.targets.maySweep() {
		h.dropReplaced()
		qp = h.tryResponder(d, pkt.DstQPN)
	}
	if qp != nil {
		qp.sync()
	}
	return qp
}

// tryResponder makes a responder of a target in a shared domain; nil if there is no number left.
func (h *hca) tryResponder(d *xrcDomain, number uint32) *queuePair {
	h.mu.Lock()
	defer h.mu.Unlock()
	qp, _ := h.newTarget(d, number)
	return qp
}

// dropReplaced destroys the responders without users whose targets are no more. driving is held.
func (h *hca) dropReplaced() {
	before := h.targets.size()
	h.dropResponders((*queuePair).replaced)
	h.targets.swept(before)
}

// domainOf is the shared domain with the target of a packet; nil if there is none. driving is
// held, so that the device does not leave it.
func (l *inLink) domainOf(pkt *ring.Packet) *xrcDomain {
	l.hca.mu.Lock()
	defer l.hca.mu.Unlock()
	i := slices.IndexFunc(l.hca.xrcds.slot, func(d *xrcDomain) bool {
		return d != nil && d.dir != nil && table.TargetEntry(&d.dir.View, pkt.DstQPN).Accepts(pkt.DstQPN, pkt.SrcQPN, &l.gid)
	})
	if i < 0 {
		return nil
	}
	return l.hca.xrcds.slot[i]
}

// dropResponders destroys the responders without users that are to go. driving is held.
func (h *hca) dropResponders(which func(*queuePair) bool) {
	h.targets.each(func(qp *queuePair) {
		if !which(qp) || !h.unused(qp) {
			return
		}
		qp.abortOpen()
		qp.state.Store(uint32(verbs.QPStateReset))
		h.hideQP(qp)
		h.mu.Lock()
		h.qpIDs.put(qp.handle % table.MaxQP)
		h.mu.Unlock()
	})
}

func (h *hca) unused(qp *queuePair) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return qp.refs == 0
}

// failShared fails the targets of shared domains whose initiators are of a device that is
// gone, also those that have no responder here.
func (h *hca) failShared(gid [2]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.xrcds.slot {
		if d == nil || d.dir == nil {
			continue
		}
		table.EachTarget(&d.dir.View, func(e *table.QP) {
			if e.FailOf(gid) {
				h.notifyMembers(d, e, verbs.EventQPFatal)
			}
		})
	}
}
