package ucplayer

import "github.com/gucx/gucx/ucp"

// requests is a ring of outstanding requests. Indexes wrap by comparison: a division for each
// message would take a comparable part of the measured time.
type requests struct {
	ring  []*ucp.Request
	first int // index of the oldest
	next  int // index after the latest
	count int
}

func newRequests(most int) requests { return requests{ring: make([]*ucp.Request, most)} }

func (q *requests) empty() bool { return q.count == 0 }

func (q *requests) full() bool { return q.count == len(q.ring) }

// after returns the index after i.
func (q *requests) after(i int) int {
	if i++; i < len(q.ring) {
		return i
	}
	return 0
}

// add appends a request; there must be room.
func (q *requests) add(r *ucp.Request) {
	q.ring[q.next] = r
	q.next = q.after(q.next)
	q.count++
}

// oldest returns the oldest request; there must be one.
func (q *requests) oldest() *ucp.Request { return q.ring[q.first] }

// drop removes the oldest request; there must be one.
func (q *requests) drop() {
	q.first = q.after(q.first)
	q.count--
}

// releaseOldest removes the oldest request if it is complete.
func (q *requests) releaseOldest() bool {
	if q.empty() {
		return false
	}
	r := q.oldest()
	if !r.Done() {
		return false
	}
	r.Release()
	q.drop()
	return true
}

// reap releases completed requests, from the oldest. The EP reports their errors.
func (q *requests) reap() {
	for q.releaseOldest() {
	}
}
