package softhca

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A target in a shared domain belongs to no single device. Its entry is in the directory of the
// domain, which all members and the initiator map. Each device that receives packets over the target
// has a separate responder, a queuePair: that of its user, who has opened the target, or one without
// a user that is created for the first packet. A responder copies the changes of other members from
// the entry; see sync.

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

// addTarget creates a target in RESET with a reference of this device.
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

// useDomain returns the domain with a number, which cannot be closed before releaseDomain; nil if
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

// newTarget creates a responder of a target in a domain. number is used only for a target in a shared
// domain. mu is held.
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

// openShared adds a reference to a target of a shared domain and to its responder.
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

// useResponder returns the responder of a target, with an additional reference; a new responder if
// there is none.
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

// dropRef releases a reference to an XRC target, and reports whether it was the last one of the
// domain. For other QPs, which have a single reference, it only returns true. A responder without
// references still handles messages to SRQs of this device.
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
		qp.refs = -1 // no other thread destroys it
	}
	return last, nil
}

// isShared reports whether the QP is a target in a domain that other devices can join.
func (qp *queuePair) isShared() bool { return qp.domain != nil && qp.domain.dir != nil }

// replaced reports whether the entry of a target in a shared domain is that of another target now,
// which may have the same number, or free.
func (qp *queuePair) replaced() bool {
	return qp.isShared() && (qp.entry.Destroyed(qp.qpn) || qp.domain.dir.Serial(qp.qpn) != qp.serial)
}

// sync updates the responder of a target in a shared domain after changes of other members. driving
// is held. exec is not held, unless no other thread executes the QP.
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

// setShared changes the state of a target in a shared domain. False if another member has reset or
// connected it since sync, so that the connection of this change is over, or has moved it to a state
// that does not allow this change. driving is held.
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

// reportFaults reports the faults of targets in a domain that other devices have detected. It runs
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

// targetFault returns the event for the value in the entry of a target. Other processes can write to
// the directory: for a value that no device writes, such as an event of a CQ, it is
// EventQPReqErr.
func targetFault(word uint32) verbs.EventType {
	switch word {
	case uint32(verbs.EventQPFatal), uint32(verbs.EventQPAccessErr):
		return verbs.EventType(word)
	}
	return verbs.EventQPReqErr
}

// targetTable finds the responders of targets in shared domains by number, without a lock.
// Several responders can have one number: those of targets in different domains.
//
// A sweep destroys the responders whose targets are gone. It is due when there are twice as many
// responders as after the last sweep, or when a new responder is needed and no QP number is free. If
// a sweep destroys none, the next ones for want of a number are skipped, as many as there are
// responders, so that the cost for each packet is constant.
type targetTable struct {
	mu     sync.Mutex // for changes
	n      int
	bucket [targetBuckets]atomic.Pointer[queuePair]

	// Under driving.
	left  int // responders after the last sweep
	skips int // sweeps to skip
}

// sweepMin is the number of new responders below which no sweep is due.
const sweepMin = 64

func (t *targetTable) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// sweepDue reports whether the number of responders makes a sweep due.
func (t *targetTable) sweepDue() bool { return t.size() >= 2*t.left+sweepMin }

// maySweep reports whether to sweep for want of a QP number.
func (t *targetTable) maySweep() bool {
	if t.skips > 0 {
		t.skips--
		return false
	}
	return true
}

// swept records a sweep of before responders.
func (t *targetTable) swept(before int) {
	if t.left = t.size(); t.left == before {
		t.skips = t.left
	}
}

// each calls f with every responder; f may remove it.
func (t *targetTable) each(f func(*queuePair)) {
	for i := range t.bucket {
		for qp := t.bucket[i].Load(); qp != nil; qp = qp.next.Load() {
			f(qp)
		}
	}
}

// targetBuckets is large enough that two responders of a process are rarely in one bucket.
const targetBuckets = 1 << 10

// find returns the responder with a number for which match returns true; nil if there is none.
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

// remove removes a responder. A concurrent traversal that has reached it continues with the next.
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

// receiver returns the destination QP of a packet; nil if there is none.
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

// addResponder creates a responder for the first packet of a peer over a target in a shared domain;
// nil if there is no such target. As a peer may send any number, that check searches the domains, and
// no QPs. driving is held.
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

// tryResponder creates a responder of a target in a shared domain; nil if no QP number is free.
func (h *hca) tryResponder(d *xrcDomain, number uint32) *queuePair {
	h.mu.Lock()
	defer h.mu.Unlock()
	qp, _ := h.newTarget(d, number)
	return qp
}

// dropReplaced is the sweep: it destroys the responders without users whose targets are gone. driving
// is held.
func (h *hca) dropReplaced() {
	before := h.targets.size()
	h.dropResponders((*queuePair).replaced)
	h.targets.swept(before)
}

// domainOf returns the shared domain with the target of a packet; nil if there is none. driving is
// held, so that the device does not leave the domain.
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

// dropResponders destroys the responders without users for which the given function returns true. driving is
// held.
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

// failShared fails the targets of shared domains whose initiators are of a device that is gone, also
// targets without a responder here.
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
