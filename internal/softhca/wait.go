package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A QP that cannot continue is in one of these lists, with queued set. The event that
// ends the wait moves it to the run list.
//
//	hca.runList     ready to run
//	hca.timed       waits for a time: the end of an RNR delay, the next poll of a peer's QP
//	outLink.waiters waits for the end of dialing
//	outLink.blocked waits for room in a request ring
//	outLink.starved waits for a receive of the peer; see starve

// schedule puts the QP on the run list, and raises attention. If the QP is in any list, it has no effect.
func (h *hca) schedule(qp *queuePair) {
	if qp.queued.Swap(true) {
		return
	}
	h.enqueue(qp)
}

func (h *hca) enqueue(qp *queuePair) {
	h.runLock.Lock()
	h.runList = append(h.runList, qp)
	h.runLock.Unlock()
	h.call(attnRun)
}

// awaitLink waits for the end of dialing.
func (qp *queuePair) awaitLink(l *outLink) stepResult {
	if qp.queued.Swap(true) {
		return stepWait
	}
	l.hca.runLock.Lock()
	dialing := l.state.Load() == linkDialing
	if dialing {
		l.waiters = append(l.waiters, qp)
	}
	l.hca.runLock.Unlock()
	if !dialing {
		l.hca.enqueue(qp)
	}
	return stepWait
}

// awaitRoom waits for room in the request ring of l. l.txLock is held. A QP does not wait on a link
// that is down, as failUsers has already released the waiting QPs.
func (qp *queuePair) awaitRoom(l *outLink) stepResult {
	if l.req.AwaitRoom() || l.state.Load() == linkDown {
		return stepAgain
	}
	if !qp.queued.Swap(true) {
		l.blocked = append(l.blocked, qp)
	}
	return stepWait
}

// awaitPeer waits for the peer's QP to become ready to receive, for the time in which a lost packet
// would be retransmitted: (RetryCnt+1) times the local ACK timeout. It does not wait for a QP that
// was destroyed.
func (qp *queuePair) awaitPeer() stepResult {
	r := &qp.req
	if qp.peerDestroyed() {
		return qp.failNext(prm.SyndromeRetryExceeded)
	}
	now := qp.hca.clock()
	limit := verbs.AckTimeout(qp.attr.Timeout).Nanoseconds() * int64(qp.attr.RetryCnt+1)
	switch {
	case r.deadline == 0 && limit > 0:
		r.deadline = now + limit
	case limit > 0 && now >= r.deadline:
		r.deadline = 0
		return qp.failNext(prm.SyndromeRetryExceeded)
	}
	return qp.sleepUntil(now + peerPoll)
}

// peerPoll is the interval at which a QP polls whether its peer is ready, in ns.
const peerPoll = 20_000

// sleepUntil waits for a time.
func (qp *queuePair) sleepUntil(t int64) stepResult {
	h := qp.hca
	if qp.timed.travels() {
		qp.timed.again = timing.Time(t-h.clock()) * timing.Nanosecond
		return stepWait
	}
	qp.wakeAt.Store(t)
	if qp.queued.Swap(true) {
		return stepWait
	}
	h.runLock.Lock()
	h.timed = append(h.timed, qp)
	h.runLock.Unlock()
	h.call(attnTimer)
	return stepWait
}

// fireTimers moves the QPs whose time has expired to the run list, and returns the time of the next
// one; 0 if there is none.
func (h *hca) fireTimers() (next int64) {
	h.runLock.Lock()
	defer h.runLock.Unlock()
	if len(h.timed) == 0 {
		return 0
	}
	now := h.clock()
	rest := h.timed[:0]
	for _, qp := range h.timed {
		switch at := qp.wakeAt.Load(); {
		case at <= now:
			h.runList = append(h.runList, qp)
			continue
		case next == 0 || at < next:
			next = at
		}
		rest = append(rest, qp)
	}
	clear(h.timed[len(rest):])
	h.timed = rest
	return next
}

// nextTimer returns the time of the next timer, which may be in the past; 0 if there is none.
func (h *hca) nextTimer() (next int64) {
	h.runLock.Lock()
	defer h.runLock.Unlock()
	for _, qp := range h.timed {
		if at := qp.wakeAt.Load(); next == 0 || at < next {
			next = at
		}
	}
	return next
}

// runScheduled runs the QPs on the run list, and reports whether QPs were added meanwhile. driving is
// held.
func (h *hca) runScheduled() bool {
	h.runLock.Lock()
	list := h.runList
	h.runList = h.spare[:0]
	h.runLock.Unlock()
	for i, qp := range list {
		list[i] = nil
		qp.queued.Store(false)
		if qp.is(verbs.QPStateErr) {
			qp.flushReceives()
		}
		qp.runOrSchedule()
	}
	h.spare = list[:0]
	h.runLock.Lock()
	defer h.runLock.Unlock()
	return len(h.runList) > 0
}

// unblock schedules the QPs that waited for room in the request ring of l, and those that waited for
// receives if the peer has cleared the starved word.
func (l *outLink) unblock() {
	l.txLock.Lock() // awaitRoom checks for room and queues under it
	list := l.blocked
	l.blocked = nil
	woken := len(l.starved) > 0 && l.mem.header().starved.Load() == 0
	l.txLock.Unlock()
	if woken {
		l.scheduleStarving()
	}
	for _, qp := range list {
		l.hca.enqueue(qp)
	}
}
