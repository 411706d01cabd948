package ucplayer

import "github.com/gucx/gucx/ucp"

// requests is a ring of requests that are under way.
type requests struct {
	ring  []*ucp.Request
	first uint64 // the oldest,
	end   uint64 // and behind the latest: running indices
}

func newRequests(most int) requests { return requests{ring: make([]*ucp.Request, most)} }

func (q *requests) empty() bool { return q.first == q.end }

func (q *requests) full() bool { return q.end-q.first == uint64(len(q.ring)) }

// add enters one; there is room.
func (q *requests) add(r *ucp.Request) {
	q.ring[q.end%uint64(len(q.ring))] = r
	q.end++
}

// oldest of them; there is one.
func (q *requests) oldest() *ucp.Request { return q.ring[q.first%uint64(len(q.ring))] }

// ended takes out the oldest if it has ended.
func (q *requests) ended() bool {
	if q.empty() {
		return false
	}
	r := q.oldest()
	if !r.Done() {
		return false
	}
	r.Release()
	q.first++
	return true
}

// reap lets go of the oldest that have ended. How they ended the EP tells.
func (q *requests) reap() {
	for q.ended() {
	}
}
