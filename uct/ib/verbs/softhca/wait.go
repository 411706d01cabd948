package softhca

import (
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/timing"
)

// A QP that cannot go on waits in one of these places, with queued set; what
// ends the wait calls schedule.
//
//	hca.runList     it can go on
//	hca.timed       a time: the end of an RNR delay, another look at a peer's QP
//	outLink.waiters a link that is being dialed
//	outLink.blocked room in a request ring
//	outLink.starved a receive of the peer; see starve

// schedule puts the QP on the run list, and gets it looked at.
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

// awaitRoom waits for room in the request ring of l. l.txLock is held. Nobody makes
// room on a link that is down, and those who waited have been let go: see dropLink.
func (qp *queuePair) awaitRoom(l *outLink) stepResult {
	if l.req.AwaitRoom() || l.state.Load() == linkDown {
		return stepAgain
	}
	if !qp.queued.Swap(true) {
		l.blocked = append(l.blocked, qp)
	}
	return stepWait
}

// awaitPeer waits for the peer's QP to become ready to receive, for as long as a
// lost packet would be resent: (RetryCnt+1) times the local ACK timeout; not at all for
// one that is no more.
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

// peerLook is how often a QP looks whether its peer has become ready, in ns.
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

// fireTimers moves the QPs whose time has come to the run list, and reports when
// the next one is due; 0 if none is.
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

// nextTimer reports when the next timer is due, which may be in the past; 0 if there
// is none.
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

// runScheduled runs what is on the run list now, and reports whether there is
// more. driving is held.
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

// unblock schedules the QPs that waited for room in l's request ring, and those that
// waited for receives if the peer says that there are some.
func (l *outLink) unblock() {
	l.txLock.Lock() // awaitRoom asks for room and queues under it
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
