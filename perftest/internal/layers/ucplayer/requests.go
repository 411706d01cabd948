package ucplayer

import "github.com/gucx/gucx/ucp"

// requests is a ring of requests that are under way. Places in it are told by comparison, as a
// division for each message would take as long as much of what is measured.
type requests struct {
	ring  []*ucp.Request
	first int // place of the oldest,
	end   int // and behind the latest
	count int
}

func newRequests(most int) requests { return requests{ring: make([]*ucp.Request, most)} }

func (q *requests) empty() bool { return q.count == 0 }

func (q *requests) full() bool { return q.count == len(q.ring) }

// after is the place behind i.
func (q *requests) after(i int) int {
	if i++; i < len(q.ring) {
		return i
	}
	return 0
}

// add enters one; there is room.
func (q *requests) add(r *ucp.Request) {
	q.ring[q.end] = r
	q.end = q.after(q.end)
	q.count++
}

// oldest of them; there is one.
func (q *requests) oldest() *ucp.Request { return q.ring[q.first] }

// drop takes out the oldest; there is one.
func (q *requests) drop() {
	q.first = q.after(q.first)
	q.count--
}

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
	q.drop()
	return true
}

// reap lets go of the oldest that have ended. How they ended the EP tells.
func (q *requests) reap() {
	for q.ended() {
	}
}
