package xrccore

import (
	"cmp"

	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Poster posts to initiators and XRC SRQs, and polls their completions: the completion of a send has the
// QPN of the initiator, that of a receive the QPN of a target. The owner of the iface calls the methods.
type Poster interface {
	// OpenSend returns the send queue of an initiator that uses the completion queue of the iface.
	OpenSend(qp *verbs.QP) (rccore.SendQueue, error)
	// ResetSend must be called after the QP has moved to RESET, and CloseSend after it is closed: they
	// drop completions of the QP that were not polled.
	ResetSend(q rccore.SendQueue)
	CloseSend(q rccore.SendQueue)
	// OpenRecv returns the poster of receives of an XRC SRQ. CloseRecv must be called when the SRQ
	// is closed.
	OpenRecv(srq *verbs.SRQ) (buffer.RecvPoster, error)
	CloseRecv(q buffer.RecvPoster)
	// Filter returns a completion queue that replaces q, which Driver.Attach returned. It passes to f
	// each completion of these queues, and of the receive queue of the core if that is an XRC SRQ.
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
func (verbsPoster) OpenRecv(srq *verbs.SRQ) (buffer.RecvPoster, error) { return srq.Provider(), nil }

// CloseRecv implements Poster.
func (verbsPoster) CloseRecv(buffer.RecvPoster) {}

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
// than len(wc) completions, the queue was empty: the caller then waits for an event, or completes the
// receives of a stopped queue. So if f drops completions, Poll polls again.
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
