package tuple

import (
	"slices"

	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Recv is the state of a receive that is posted to a queue, usually a part of the owner's
// record. Init makes it ready once; Conn.Prepare returns it.
type Recv[R, M any] struct {
	uct.QueueRecv
	// IOV is the buffer of the receive, and room for excess bytes. Conn.Prepare sets it.
	IOV  []uct.IOV
	node *match.Recv[R]
	t    *in[R, M]
}

// Init initializes the record of a receive.
func (r *Recv[R, M]) Init() { r.Func = func(*uct.QueueRecv) { r.ended() } }

// post posts the receive.
func (r *Recv[R, M]) post() error {
	err := r.t.q.Post(&r.QueueRecv, r.IOV)
	if err == nil {
		r.t.posted++
	}
	return err
}

// ended is called when the queue has received the message, or returns the receive.
func (r *Recv[R, M]) ended() {
	t := r.t
	t.posted--
	if r.Status == ucs.StatusOK {
		t.from.x.stats.receives.Inc()
		t.from.conn.Received(r.node.Owner, r.Len)
	} else {
		t.returnRecv(r)
	}
	switch {
	case t.state == inStopping:
		t.proceed()
	case len(t.backlog) > 0:
		t.postBacklog()
	}
}

// Cancel removes a receive that waits for room in the queue, and returns true. Otherwise it
// closes the queue, and returns false: the receiver calls Conn.Returned when the queue
// returns the receive, unless it has received a message.
func (r *Recv[R, M]) Cancel() bool {
	t := r.t
	if i := slices.Index(t.backlog, r); i >= 0 {
		t.backlog = slices.Delete(t.backlog, i, i+1)
		return true
	}
	t.stop(&t.from.x.stats.canceled)
	return false
}
