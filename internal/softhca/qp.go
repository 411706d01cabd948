package softhca

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/spin"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/internal/sparse"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// queuePair is the device's side of a QP.
//
// The requester half (requester.go) runs in the thread that rings the doorbell or
// drives the device, under exec. The responder half (responder_unsafe.go) runs under
// hca.driving.
type queuePair struct {
	hca     *hca
	handle  uint32 // for the driver
	qpn     uint32 // equal to handle, except for a target in a shared domain
	uidx    uint32
	pdn     uint32
	service verbs.QPType
	sq      prm.SQView
	dbrec   prm.DBRec
	sendCQ  *compQueue
	recvCQ  *compQueue
	rq      *recvQueue
	entry   *table.QP // in the table that peers read, or in the directory of a shared domain

	domain  *xrcDomain                // of an XRC target; else nil
	refs    int                       // references of this device to an XRC target; -1 while it is destroyed; under hca.mu
	serial  uint32                    // of a target in a shared domain: xrcdomain.View.Serial
	epoch   uint32                    // of a target in a shared domain: table.StateWord.Epoch, see sync; under driving
	next    atomic.Pointer[queuePair] // of targets in shared domains: see targetTable
	records uint64                    // doorbell record of an XRC target, always 0

	state atomic.Uint32 // verbs.QPState
	attr  verbs.QPAttr  // written under hca.mu with exec and driving held

	exec   spin.Section
	req    requester
	resp   responder
	queued atomic.Bool  // on hca.runList or a wait list
	wakeAt atomic.Int64 // time at which a wait on hca.timed ends

	timed *timedQP // nil without a model of time
}

// CreateQP implements prm.Hardware.
func (h *hca) CreateQP(p prm.QPParams) (uint32, error) {
	if p.Type != verbs.QPTypeRC && p.Type != verbs.QPTypeUD && p.Type != verbs.QPTypeXRCSend {
		return 0, ucs.ErrUnsupported
	}
	h.owner.Reclaim()
	h.mu.Lock()
	defer h.mu.Unlock()
	send, recv := h.cqs.get(p.SendCQN), h.cqs.get(p.RecvCQN)
	if send == nil || recv == nil && p.Type != verbs.QPTypeXRCSend || p.DBRec == (prm.DBRec{}) {
		return 0, ucs.ErrInvalidParam
	}
	qp, err := h.newQP(p.Type)
	if err != nil {
		return 0, err
	}
	qp.uidx, qp.pdn, qp.dbrec, qp.sendCQ, qp.recvCQ = p.UserIndex, p.PDN, p.DBRec, send, recv
	if err = qp.attachModel(p); err == nil {
		err = qp.attachQueues(h, p)
	}
	if err != nil {
		h.qpIDs.put(qp.qpn % table.MaxQP)
		return 0, err
	}
	qp.countUsers(1)
	h.showQP(qp)
	return qp.qpn, nil
}

// qpVariants is the mask of the variant bits of a QPN. It excludes xrcdomain.NumberBit, which marks
// targets of shared domains.
const qpVariants = xrcdomain.NumberBit>>16 - 1

// newQP creates a QP and assigns its number. mu is held.
func (h *hca) newQP(service verbs.QPType) (*queuePair, error) {
	idx, variant, ok := h.qpIDs.get()
	if !ok {
		return nil, ucs.ErrNoMemory
	}
	qpn := uint32(variant&qpVariants)<<16 | idx
	return &queuePair{hca: h, handle: qpn, qpn: qpn, service: service, entry: h.table.QP(qpn)}, nil
}

// showQP publishes a QP to peers, in RESET. mu is held.
func (h *hca) showQP(qp *queuePair) {
	qp.entry.QPN.Store(qp.qpn)
	qp.entry.PDN.Store(qp.pdn)
	qp.entry.Service.Store(uint32(qp.service))
	qp.entry.SetDestGID(verbs.GID{})
	qp.entry.State.Store(uint32(verbs.QPStateReset))
	h.qps.slot.Store(qp.handle%table.MaxQP, qp)
}

// countUsers adds n to the numbers of users of the CQs and the SRQ of the QP. mu is held.
func (qp *queuePair) countUsers(n int) {
	for _, cq := range [...]*compQueue{qp.sendCQ, qp.recvCQ} {
		if cq != nil {
			cq.users += n
		}
	}
	if qp.rq.shared() {
		qp.rq.users += n
		qp.hca.withSRQ += n
	}
}

func (qp *queuePair) attachQueues(h *hca, p prm.QPParams) (err error) {
	if qp.sq, err = prm.NewSQView(p.SQ, p.SQCount, qp.qpn, p.Type); err != nil {
		return err
	}
	if p.SRQN != 0 {
		if qp.rq = h.srqs.get(p.SRQN); qp.rq == nil {
			return ucs.ErrInvalidParam
		}
		return nil
	}
	qp.rq = &recvQueue{hca: h, pdn: p.PDN, maxSGE: p.RQMaxSGE, dbrec: qp.dbrec}
	if p.RQ == nil {
		return nil
	}
	qp.rq.view, err = prm.NewRQView(p.RQ, p.RQCount, p.RQStride)
	return err
}

// qpTable finds a QP by its handle without a lock. The handle is the number, except for targets in
// shared domains: see targetTable.
type qpTable struct{ slot sparse.Table[queuePair] }

func (t *qpTable) find(handle uint32) *queuePair {
	if qp := t.slot.Load(handle % table.MaxQP); qp != nil && qp.handle == handle {
		return qp
	}
	return nil
}

// eachQP calls f with every QP that exists at the call. h.mu is not held.
func (h *hca) eachQP(f func(*queuePair)) {
	h.mu.Lock()
	n := h.qpIDs.next
	h.mu.Unlock()
	for i := range n + 1 {
		if qp := h.qps.slot.Load(i); qp != nil {
			f(qp)
		}
	}
}

// ModifyQP implements prm.Hardware.
func (h *hca) ModifyQP(qpn uint32, attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	qp := h.qps.find(qpn)
	if qp == nil {
		return ucs.ErrInvalidParam
	}
	peer := qp.peer()
	err := qp.modify(attr, mask)
	if mask&verbs.QPMaskState != 0 && attr.State == verbs.QPStateReset {
		h.awaitVisits(peer)
		qp.receiveArrived()
	}
	return err
}

// peer returns the GID of the device that an RC QP is connected to.
func (qp *queuePair) peer() [2]uint64 { return qp.entry.Peer() }

// modify is ModifyQP without the wait for accesses of the peer.
func (qp *queuePair) modify(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	qp.halt()
	defer qp.resume()
	qp.sync()
	toState := mask&verbs.QPMaskState != 0
	if from := qp.loadState(); toState && !qp.service.Allows(from, attr.State) {
		return errStateChanged(from, attr.State)
	}
	qp.merge(attr, mask)
	if !toState {
		return nil
	}
	switch attr.State {
	case verbs.QPStateReset:
		qp.reset()
		return nil
	case verbs.QPStateRTR:
		switch qp.service {
		case verbs.QPTypeRC, verbs.QPTypeXRCSend:
			return qp.connect()
		case verbs.QPTypeXRCRecv:
			qp.entry.SetDestGID(qp.attr.AH.DGID) // it sends nothing, so it needs no link
		}
	case verbs.QPStateErr:
		qp.enterError(prm.SyndromeWRFlush, prm.SyndromeOK)
		qp.flushReceives() // also receives that were posted in ERR
		return nil
	}
	if !qp.setState(attr.State) {
		return errStateChanged(qp.entry.Load().State(), attr.State)
	}
	if l := qp.req.link; l != nil && l.state.Load() == linkDown {
		qp.failUnlinked()
	}
	return nil
}

// errStateChanged is the error for a change of state that was allowed when Modify was called, but no
// longer: the device, or another member of the target's domain, has changed the state meanwhile.
func errStateChanged(from, to verbs.QPState) error {
	return fmt.Errorf("from %v, which it went to meanwhile, to %v: %w", from, to, ucs.ErrInvalidState)
}

// halt prevents other threads from executing the QP until resume.
func (qp *queuePair) halt() {
	qp.hca.driving.Lock()
	qp.exec.Lock()
}

func (qp *queuePair) resume() {
	qp.exec.Release()
	qp.hca.driving.Unlock()
}

// setState changes the state, here and in the table. False if another member of the domain of a
// shared target has changed the state before: see setShared.
func (qp *queuePair) setState(s verbs.QPState) bool {
	switch {
	case !qp.isShared():
		qp.entry.State.Store(uint32(s))
	case !qp.replaced() && !qp.setShared(s):
		return false
	}
	qp.state.Store(uint32(s))
	qp.hca.table.Generation().Add(1)
	if qp.domain != nil {
		qp.hca.wakeStarving() // QPs that wait for a receive find that the target has stopped
	}
	return true
}

func (qp *queuePair) loadState() verbs.QPState { return verbs.QPState(qp.state.Load()) }

func (qp *queuePair) is(s verbs.QPState) bool { return qp.loadState() == s }

// merge sets the attributes in mask, and publishes those that peers need.
func (qp *queuePair) merge(a *verbs.QPAttr, mask verbs.QPAttrMask) {
	qp.attr.Merge(a, mask)
	has := func(m verbs.QPAttrMask) bool { return mask&m != 0 }
	e := qp.entry
	if has(verbs.QPMaskAccessFlags) {
		e.Access.Store(uint32(a.AccessFlags))
		qp.hca.table.Generation().Add(1)
	}
	if has(verbs.QPMaskPathMTU) {
		e.PathMTU.Store(uint32(a.PathMTU))
	}
	if has(verbs.QPMaskMinRNRTimer) {
		e.RNRTimer.Store(uint32(a.MinRNRTimer))
	}
	if has(verbs.QPMaskDestQPN) {
		e.DestQPN.Store(a.DestQPN)
	}
	if has(verbs.QPMaskRQPSN) {
		qp.resp.msn = a.RQPSN
		e.RQPSN.Store(a.RQPSN)
	}
	if has(verbs.QPMaskSQPSN) {
		qp.req.msn = a.SQPSN
	}
	if has(verbs.QPMaskRNRRetry) {
		qp.req.rnrLeft = a.RNRRetry
	}
}

// mlx5PSNMask is the mask of a packet sequence number of 24 bits (IBTA volume 1, 9.2).
const mlx5PSNMask = 1<<24 - 1

// connect starts to dial the peer of a QP, and allows the accesses of the peer.
func (qp *queuePair) connect() error {
	l, err := qp.hca.linkTo(qp.attr.AH.DGID)
	if err != nil {
		return err
	}
	if qp.service == verbs.QPTypeRC && !qp.req.counted {
		if !l.countQP() {
			return fmt.Errorf("%w: %d RC QPs to one process, as many as the software HCA connects; XRC QPs are shared by connections",
				ucs.ErrNoMemory, maxGuards)
		}
		qp.req.counted = true
	}
	qp.req.link = l
	qp.entry.SetDestGID(qp.attr.AH.DGID)
	qp.setState(verbs.QPStateRTR)
	return nil
}

// reset drops all work without completions, except for the receive of an open message from an SRQ.
// It completes, so that the driver posts it again when it empties the CQ; the caller does so for an
// XRC SRQ.
func (qp *queuePair) reset() {
	qp.setState(verbs.QPStateReset)
	if qp.receivesShared() {
		qp.abortOpen()
	}
	qp.detach()
	qp.req = requester{}
	qp.resp = responder{}
	qp.attr = verbs.QPAttr{}
	if qp.timed != nil {
		qp.timed.reset()
	}
	if !qp.rq.shared() {
		qp.rq.consumed = 0
	}
}

// receivesShared reports whether the QP receives from SRQs.
func (qp *queuePair) receivesShared() bool { return qp.rq.shared() || qp.domain != nil }

// detach releases the links. exec is held.
func (qp *queuePair) detach() {
	r := &qp.req
	qp.dropClaim()
	qp.stopStarving()
	qp.releaseShared()
	r.path.releaseGuard()
	if r.counted {
		r.counted = false
		r.link.uncountQP()
	}
	r.path, r.grant = path{}, grant{}
	r.udLinks = nil
}

// udLink returns the link to the port of a datagram. A port that was not reached is dialed again
// after redialPause; links to such ports are removed when a new one is added.
func (qp *queuePair) udLink(gid verbs.GID) (*outLink, error) {
	r := &qp.req
	for i, l := range r.udLinks {
		if l.gid != gid {
			continue
		}
		if l.canRedial() {
			break
		}
		r.udLinks[0], r.udLinks[i] = l, r.udLinks[0]
		return l, nil
	}
	r.udLinks = slices.DeleteFunc(r.udLinks, (*outLink).canRedial)
	l, err := qp.hca.linkTo(gid)
	if err != nil {
		return nil, err
	}
	r.udLinks = append(r.udLinks, l)
	return l, nil
}

// canRedial reports whether the link is down and the port may be dialed again.
func (l *outLink) canRedial() bool {
	return l.state.Load() == linkDown && nanotime() >= l.again.Load()
}

// DestroyQP implements prm.Hardware.
func (h *hca) DestroyQP(qpn uint32) error {
	qp := h.qps.find(qpn)
	if qp == nil {
		return ucs.ErrInvalidParam
	}
	peer := qp.peer()
	if last, err := h.dropRef(qp); !last {
		return err
	}
	h.destroy(qp, peer)
	return nil
}

// destroy destroys a QP without references that was connected to the device peer.
func (h *hca) destroy(qp *queuePair, peer [2]uint64) {
	qp.halt()
	qp.setState(verbs.QPStateReset)
	if qp.receivesShared() {
		qp.abortOpen() // see reset
	}
	if qp.domain == nil {
		h.hideQP(qp)
	}
	qp.detach()
	qp.resume()
	inside := h.awaitVisits(peer)
	if qp.domain != nil {
		qp.receiveArrived()
		h.driving.Lock()
		h.hideQP(qp)
		h.driving.Unlock()
	}

	h.mu.Lock()
	qp.countUsers(-1)
	h.mu.Unlock()
	h.owner.Free(inside, 0, func() {
		h.mu.Lock()
		h.qpIDs.put(qp.handle % table.MaxQP)
		h.mu.Unlock()
	})
}

// hideQP removes a QP from the tables. driving is held.
func (h *hca) hideQP(qp *queuePair) {
	if qp.isShared() {
		h.targets.remove(qp)
	} else {
		qp.entry.QPN.Store(0)
	}
	h.qps.slot.Store(qp.handle%table.MaxQP, nil)
}

// QueryQP implements prm.Hardware.
func (h *hca) QueryQP(qpn uint32) (verbs.QPState, error) {
	qp := h.qps.find(qpn)
	if qp == nil {
		return 0, ucs.ErrInvalidParam
	}
	if qp.isShared() {
		return qp.entry.Load().State(), nil
	}
	return qp.loadState(), nil
}
