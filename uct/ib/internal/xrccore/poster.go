package xrccore

import (
	"cmp"

	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Poster posts to other queues than those of the RC QPs of EPs, and polls their completions: a send
// has the QPN of its QP, a receive that of a target. The owner of the iface calls the methods.
type Poster interface {
	// OpenSend returns the send queue of an initiator that uses the completion queue of the iface.
	OpenSend(qp *verbs.QP) (rccore.SendQueue, error)
	// ResetSend must be called when the QP is in RESET, and CloseSend when it is closed: they drop
	// completions of the QP that were not polled.
	ResetSend(q rccore.SendQueue)
	CloseSend(q rccore.SendQueue)
	// OpenRecv returns the poster of receives of an XRC SRQ. CloseRecv must be called when the SRQ
	// is closed.
	OpenRecv(srq *verbs.SRQ) (ib.RecvPoster, error)
	CloseRecv(q ib.RecvPoster)
	// Filter passes to f each completion of these queues, and those of the receive queue of the
	// core if that is an XRC SRQ. q is the completion queue that Driver.Attach returned; the result
	// replaces it.
	Filter(q rccore.CompQueue, f Filter) rccore.CompQueue
}

// Filter handles completions before the core does.
type Filter interface {
	// Filter changes a completion into one of an EP. It returns false if the core must not see the completion.
	Filter(c *verbs.WC) bool
}

// verbsPoster posts and polls by package verbs, which drops completions by itself.
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

// completions is the completion queue for the core.
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
			break // the queue was empty
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
