package softhca

import (
	"unsafe"

	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// delivery is the state of a send of an XRC initiator that this device executes alone: it claims
// the receive, fills it, and puts a notice into the ring.
type delivery struct {
	claim *table.ClaimWord // nil: nothing is claimed
	seq   uint16
	recv  table.Recv // a copy
}

// deliver executes a send to an XRC SRQ without the peer. It returns false, without a claim, if
// the send must use the ring.
func (qp *queuePair) deliver(w *prm.WQE, budget *int) (v stepResult, ok bool) {
	r := &qp.req
	if v, ok := qp.ready(); !ok {
		return v, true
	}
	l := r.link
	if r.packed || l.self || l.claims.None() || r.inFlight > 0 && !l.cma {
		return stepDone, false
	}
	if r.inFlight > 0 {
		return stepWait, true // it must not overtake messages in the ring; a response schedules the QP
	}
	if r.out.claim == nil {
		if v, ok := qp.begin(w); v != stepDone || !ok {
			return v, ok
		}
	}
	var k walk
	k.begin(qp, w, 0)
	for r.moved < w.Len {
		if *budget <= 0 {
			return stepAgain, true
		}
		n, v := qp.fill(w, &k, uint64(*budget))
		if v != stepDone || r.packed {
			return v, !r.packed
		}
		r.moved += n
		*budget -= int(n)
	}
	return qp.completeFilled(w), true
}

// begin checks the work request and claims the next receive. False if the message must use the
// ring.
func (qp *queuePair) begin(w *prm.WQE) (v stepResult, ok bool) {
	r := &qp.req
	if w.Len > maxMessage {
		return qp.failNext(prm.SyndromeLocalLength), true
	}
	var k walk
	k.begin(qp, w, 0)
	if !k.valid() {
		return qp.failNext(prm.SyndromeLocalProt), true
	}
	qp.exec.Quiescent() // enterQueue is the barrier
	idle := r.guard.enterQueue(w.SRQN, 0)
	c := qp.claimNext(w)
	r.guard.Leave(idle)
	switch c {
	case claimPeer:
		return qp.awaitPeer(), true
	case claimNoQueue:
		return qp.failWithPeer(prm.SyndromeRemoteInvalidReq), true
	case claimBusy:
		return qp.sleepUntil(qp.hca.clock() + r.busyDelay()), true
	case claimNothing:
		return qp.noReceive(w), true
	}
	r.deadline, r.busy = 0, 0
	if !r.out.recv.Takes(w.Len) {
		qp.toRing()
		return stepDone, false
	}
	return stepDone, true
}

// claimResult is the result of an attempt to claim a receive.
type claimResult uint8

const (
	claimMade    claimResult = iota
	claimPeer                // the target is not ready
	claimNoQueue             // its domain has no such SRQ
	claimBusy                // another device is filling the next receive
	claimNothing             // no receive is posted
)

// A QP that finds that another device is filling the next receive tries again after
// busyDelayMin, in ns: a small message is complete by then. The delay is doubled on each try, up
// to busyDoublings times, as the other process may be stopped.
const (
	busyDelayMin  = 50_000
	busyDoublings = 6
)

// busyDelay returns the delay before the next try, and doubles it for the one after.
func (r *requester) busyDelay() int64 {
	d := int64(busyDelayMin) << r.busy
	r.busy = min(r.busy+1, busyDoublings)
	return d
}

// claimNext claims the next receive of the SRQ of w. The guard is up.
func (qp *queuePair) claimNext(w *prm.WQE) claimResult {
	l := qp.req.link
	e := qp.peerEntry()
	if !e.Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) {
		return claimPeer
	}
	if _, ok := qp.remotePD(w, e); !ok {
		return claimNoQueue
	}
	c := l.claims.Of(w.SRQN)
	word := c.Load()
	id, seq := table.SplitClaim(word)
	switch {
	case id != 0:
		return claimBusy
	case uint16(l.table.SRQ(w.SRQN).Posted.Load()) == seq:
		return claimNothing
	case !c.CompareAndSwap(word, table.Claimed(qp.hca.claimID, seq)):
		return claimBusy
	}
	qp.req.out = delivery{claim: c, seq: seq, recv: *l.table.Recv(w.SRQN, seq)}
	if qp.req.out.recv.Seq != uint32(seq) {
		qp.dropClaim()
		return claimBusy // this receive is not published: the claim word is not valid
	}
	return claimMade
}

// fill moves the next bytes of the message, at most limit. If the message must use the ring, it
// sets r.packed.
func (qp *queuePair) fill(w *prm.WQE, k *walk, limit uint64) (n uint64, v stepResult) {
	r := &qp.req
	key, addr, n := r.out.recv.At(r.moved)
	n = min(n, limit, w.Len-r.moved)
	qp.exec.Quiescent() // enterQueue is the barrier
	idle := r.guard.enterQueue(w.SRQN, key)
	pdn, claimed := qp.ownsClaim(w)
	var m remote
	ok := claimed && n > 0
	if ok {
		m, ok = r.link.memory(key, addr, n, pdn, verbs.AccessLocalWrite)
	}
	syn := prm.SyndromeOK
	switch {
	case !ok:
	case !m.private && !k.gather(m.ptr, r.moved, n):
		syn = prm.SyndromeLocalProt
	case m.private:
		ok, syn = qp.fillPrivate(k, addr, n)
	}
	r.guard.Leave(idle)
	switch {
	case syn == prm.SyndromeLocalProt:
		return 0, qp.failNext(syn)
	case syn != prm.SyndromeOK:
		return 0, qp.failWithPeer(syn)
	case !claimed:
		qp.dropClaim()
		r.moved = 0
		return 0, stepAgain // the next step reads the state of the queue
	case !ok:
		qp.toRing() // the target finds the fault
	}
	return n, stepDone
}

// ownsClaim reports whether the target still accepts the delivery and the claim is still that of
// this device, and returns the protection domain of the target's memory. The guard is up.
func (qp *queuePair) ownsClaim(w *prm.WQE) (pdn uint32, ok bool) {
	r := &qp.req
	e := qp.peerEntry()
	if !e.Accepts(qp.attr.DestQPN, qp.qpn, &qp.hca.gidWords) || r.out.claim.Load() != table.Claimed(qp.hca.claimID, r.out.seq) {
		return 0, false
	}
	return qp.remotePD(w, e)
}

// fillPrivate moves bytes to memory of the target that is not mapped here. False if the kernel
// does not allow that.
func (qp *queuePair) fillPrivate(k *walk, raddr, n uint64) (ok bool, syn prm.Syndrome) {
	r := &qp.req
	if !r.link.cma {
		return false, prm.SyndromeOK
	}
	for off := uint64(0); off < n; {
		p, m := k.at(r.moved + off)
		if p == nil {
			return false, prm.SyndromeLocalProt
		}
		b := unsafe.Slice((*byte)(p), min(m, n-off))
		switch err := r.vec.Write(r.link.pid, b, raddr+off); err {
		case nil:
		case cma.ErrGone:
			return false, r.deadPeerSyndrome()
		default:
			return false, prm.SyndromeOK
		}
		off += uint64(len(b))
	}
	return true, prm.SyndromeOK
}

// completeFilled sends the notice that the message is in the memory of the target, and completes
// the send.
func (qp *queuePair) completeFilled(w *prm.WQE) stepResult {
	r := &qp.req
	l := r.link
	qp.exec.Quiescent() // enterQueue is the barrier
	idle := r.guard.enterQueue(w.SRQN, 0)
	_, claimed := qp.ownsClaim(w)
	v := stepAgain
	if claimed {
		v = qp.sendNotice(w)
	}
	r.guard.Leave(idle)
	switch {
	case !claimed:
		qp.dropClaim()
		r.moved = 0
		return stepAgain
	case v != stepDone:
		return v
	}
	call(l.ctl, l.wakeFD, attnRequest)
	qp.progressed()
	return qp.finish(w, 0)
}

// sendNotice puts the notice into the ring, and then advances the claim word to the next receive.
// The guard is up: when the owner has closed the queue and no guard is up, all notices are in the
// rings.
func (qp *queuePair) sendNotice(w *prm.WQE) stepResult {
	r := &qp.req
	l := r.link
	l.txLock.Lock()
	pkt := l.req.Reserve(0)
	if pkt == nil {
		v := qp.awaitRoom(l)
		l.txLock.Unlock()
		return v
	}
	pkt.Op, pkt.SrcQPN, pkt.DstQPN, pkt.Ext = ring.OpFilled, qp.qpn, qp.attr.DestQPN, w.SRQN
	pkt.Total, pkt.RAddr = uint32(w.Len), uint64(r.out.seq)
	pkt.Flags = ring.FlagFirst | ring.FlagLast | ring.FlagXRC
	if w.Op == prm.OpSendImm {
		pkt.Flags |= ring.FlagImm
		pkt.Imm = w.Imm
	}
	if w.Flags.Solicited() {
		pkt.Flags |= ring.FlagSolicited
	}
	l.req.Publish(pkt)
	l.txLock.Unlock()
	r.out.claim.CompareAndSwap(table.Claimed(qp.hca.claimID, r.out.seq), table.Claimed(0, r.out.seq+1))
	r.out.claim = nil
	return stepDone
}

// toRing restarts the message, which then goes through the ring.
func (qp *queuePair) toRing() {
	qp.dropClaim()
	qp.req.packed, qp.req.moved = true, 0
}

// dropClaim releases a claimed receive that is not filled. exec is held. The link is mapped, as a
// QP that has failed has no claim.
func (qp *queuePair) dropClaim() {
	d := &qp.req.out
	if d.claim != nil {
		d.claim.CompareAndSwap(table.Claimed(qp.hca.claimID, d.seq), table.Claimed(0, d.seq))
		d.claim = nil
	}
}
