package xrccore

import (
	"cmp"

	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Poster posts to queues that are not those of the EPs' RC QPs, and polls what completes of
// them: sends as completions of their QP, receives as those of a target. The methods are called
// by the owner of the iface.
type Poster interface {
	// OpenSend is how an initiator is posted to that completes in the queue of the iface.
	OpenSend(qp *verbs.QP) (rccore.SendQueue, error)
	// ResetSend is told that the QP is in RESET, and CloseSend that it is closed: completions
	// of it that nobody has polled are dropped.
	ResetSend(q rccore.SendQueue)
	CloseSend(q rccore.SendQueue)
	// OpenRecv is how an XRC SRQ is posted to, likewise. CloseRecv is told that it is closed.
	OpenRecv(srq *verbs.SRQ) (ib.RecvPoster, error)
	CloseRecv(q ib.RecvPoster)
	// Filter has f look at each completion of these queues, and at those of the receive queue
	// of the core if that is an XRC SRQ. q is the completion queue that Driver.Attach has
	// returned; the result takes its place.
	Filter(q rccore.CompQueue, f Filter) rccore.CompQueue
}

// Filter looks at completions before the core does.
type Filter interface {
	// Filter makes it one of an EP, and reports whether there is something to be told of it.
	Filter(c *verbs.WC) bool
}

// verbsPoster leaves both to verbs, which drops completions by itself.
type verbsPoster struct{}

// OpenSend implements Poster.
func (verbsPoster) OpenSend(qp *verbs.QP) (rccore.SendQueue, error) { return qp.Provider(), nil }

// ResetSend implements Poster.
func (verbsPoster) ResetSend(rccore.SendQueue) {}

// CloseSend implements Poster.
func (verbsPoster) CloseSend(rccore.SendQueue) {}

// OpenRecv implements Poster.
func (verbsPoster) OpenRecv(srq *verbs.SRQ) (ib.RecvPoster, error) { return srq.Provider(), nil }

// CloseRecv implements Poster.
func (verbsPoster) CloseRecv(ib.RecvPoster) {}

// Filter implements Poster.
func (verbsPoster) Filter(q rccore.CompQueue, f Filter) rccore.CompQueue {
	return &completions{q.(verbs.CQProvider), f}
}

// completions is the completion queue, as the core sees it.
type completions struct {
	verbs.CQProvider
	f Filter
}

// Poll implements rccore.Poller: QPN and ID are those of the EP, and not of the initiator. Fewer
// than there is room for mean that the queue was empty, and not that nothing of a batch is to be
// told: a caller waits for an event then, or ends the receives of a queue that was stopped.
func (q *completions) Poll(wc []verbs.WC) (kept int) {
	for kept < len(wc) {
		room := wc[kept:]
		count := q.CQProvider.Poll(room)
		if count <= 0 {
			return cmp.Or(kept, count)
		}
		if kept += q.filter(room[:count]); kept > 0 && count < len(room) {
			break // it was empty
		}
	}
	return kept
}

// filter moves those of which there is something to be told to the front.
func (q *completions) filter(wc []verbs.WC) (kept int) {
	for i := range wc {
		if q.f.Filter(&wc[i]) {
			if kept != i {
				wc[kept] = wc[i]
			}
			kept++
		}
	}
	return kept
}
