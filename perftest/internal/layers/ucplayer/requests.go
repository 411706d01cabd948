package ucplayer

import (
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
)

// slot is a place for an outstanding request.
type slot struct {
	req  *ucp.Request
	buf  []byte // of a receive
	form *form  // layout of buf, if it is not one buffer
	next *slot
}

// requests are outstanding requests in a ring of slots. The slots are linked, because checks of an index would be part
// of the measured time of each message.
type requests struct {
	slots []slot
	first *slot // of the oldest request
	free  *slot // of the next one to be added
	count int
}

func newRequests(most int) requests {
	slots := make([]slot, most)
	for i := range slots {
		slots[i].next = &slots[(i+1)%most]
	}
	return requests{slots: slots, first: &slots[0], free: &slots[0]}
}

func (q *requests) empty() bool { return q.count == 0 }

func (q *requests) full() bool { return q.count == len(q.slots) }

// add adds a request in the free slot; there must be room.
func (q *requests) add(r *ucp.Request) {
	q.free.req = r
	q.free = q.free.next
	q.count++
}

// done reports that there is a request, and that the oldest is complete.
func (q *requests) done() bool { return q.count > 0 && q.first.req.Done() }

// drop releases the oldest request; there must be one.
func (q *requests) drop() {
	q.first.req.Release()
	q.first = q.first.next
	q.count--
}

// reap releases completed requests, from the oldest. The EP reports their errors.
func (q *requests) reap() {
	for q.done() {
		q.drop()
	}
}

// receive passes the messages of completed receives to in, from the oldest, and reports whether there were any.
func (q *requests) receive(in *layer.Inbox) (received bool) {
	for q.done() {
		in.Receive(q.first.buf)
		q.drop()
		received = true
	}
	return received
}
