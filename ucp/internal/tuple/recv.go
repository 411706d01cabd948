package tuple

import (
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Recv is what a receive has for the queue that it is in, as a rule a part of the owner's
// record. Init makes it ready once; Conn.Prepare hands it out.
type Recv[R, M any] struct {
	uct.QueueRecv
	// IOV is where the message goes, and what is beyond the buffer. Conn.Prepare sets it.
	IOV  []uct.IOV
	node *match.Recv[R]
	t    *in[R, M]
}

// Init makes the record of a receive ready.
func (r *Recv[R, M]) Init() { r.Func = func(*uct.QueueRecv) { r.ended() } }

// post posts the receive.
func (r *Recv[R, M]) post() error {
	err := r.t.q.Post(&r.QueueRecv, r.IOV)
	if err == nil {
		r.t.posted++
	}
	return err
}

// ended is called when the queue has a message for the receive, or gives it back.
func (r *Recv[R, M]) ended() {
	t := r.t
	t.posted--
	if r.Status == ucs.StatusOK {
		t.from.x.stats.receives.Inc()
		t.from.conn.Received(r.node.Owner, r.Len)
	} else {
		t.giveBack(r)
	}
	switch {
	case t.state == inStopping:
		t.proceed()
	case len(t.backlog) > 0:
		t.postBacklog()
	}
}

// Cancel takes a receive out that the queue has no room for yet, and reports true. Otherwise it
// has the queue closed, and reports false: the owner is told (Conn.Returned) when the queue
// gives the receive back, unless it has a message.
func (r *Recv[R, M]) Cancel() bool {
	t := r.t
	if i := slices.Index(t.backlog, r); i >= 0 {
		t.backlog = slices.Delete(t.backlog, i, i+1)
		return true
	}
	t.stop(&t.from.x.stats.canceled)
	return false
}
