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
	// OpenSend returns how to post to an initiator that completes in the completion queue of the iface.
	OpenSend(qp *verbs.QP) (rccore.SendQueue, error)
	// ResetSend must be called when the QP is in RESET, and CloseSend when it is closed: they drop
	// completions of the QP that were not polled.
	ResetSend(q rccore.SendQueue)
	CloseSend(q rccore.SendQueue)
	// OpenRecv returns how to post to an XRC SRQ. CloseRecv must be called when the SRQ is closed.
	OpenRecv(srq *verbs.SRQ) (ib.RecvPoster, error)
	CloseRecv(q ib.RecvPoster)
	// Filter passes each completion of these queues to f, and those of the receive queue
	// of the core if that is an XRC SRQ. q is the completion queue that Driver.Attach
	// returned; the result replaces it.
	Filter(q rccore.CompQueue, f Filter) rccore.CompQueue
}

// Filter looks at completions before the core does.
type Filter interface {
	// Filter changes a completion into one of an EP. It returns false if the core must not see the completion.
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

// Poll implements rccore.Poller: QPN and ID are those of the EP, not of the initiator. If it returns fewer
// completions than there is room for, the queue was empty. It must not return fewer because f dropped some:
// the caller would wait for an event, or complete the receives of a queue that was stopped.
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

// filter moves the completions that the core must see to the front, and returns their number.
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
