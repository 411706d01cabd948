package bootstrap

import (
	"slices"
	"sync"
	"time"

	"github.com/gucx/gucx/ucs"
)

// Inbox is the queue of requests for a worker: those of a [Listener], or those that other workers have moved to it with
// [Request.Migrate]. Any goroutine may call its methods.
type Inbox struct {
	notify func()

	mu     sync.Mutex // after that of a Listener
	queue  []*Request
	closed bool
}

// NewInbox returns an empty inbox. notify is called, on any goroutine, when Take can return a request. It must not block,
// nor call methods of the inbox.
func NewInbox(notify func()) *Inbox { return &Inbox{notify: notify} }

// Take returns the requests that have changed since the last call: new ones, which wait for
// a reply, and accepted or rejected ones with a closed socket; see [Request.Gone].
func (b *Inbox) Take() []*Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	news := b.queue
	b.queue = nil
	return news
}

// Close drops the requests in the inbox. Later calls of Migrate return ErrClosed. Idempotent.
func (b *Inbox) Close() {
	b.mu.Lock()
	left := b.queue
	b.queue, b.closed = nil, true
	b.mu.Unlock()
	for _, r := range left {
		r.Drop()
	}
}

// add queues a request and calls notify; false if the inbox is closed. After Close notify is not called.
func (b *Inbox) add(r *Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.queue = append(b.queue, r)
	b.notify()
	return true
}

// remove reports whether the request was in the queue.
func (b *Inbox) remove(r *Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.queue)
	b.queue = slices.DeleteFunc(b.queue, func(o *Request) bool { return o == r })
	return len(b.queue) < n
}

// Migrate moves a request that Take has returned, and that waits for a reply, to another inbox, whose owner must then
// reply. It does not move the request of a dialer that is gone. A moved request may be evicted, because its new owner may
// make no progress and the places of a listener are limited. ErrClosed if the inbox is closed: then the caller must reply.
func (r *Request) Migrate(to *Inbox) error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if r.gone || r.closed {
		return nil
	}
	from := r.inbox
	r.inbox = to
	if !to.add(r) {
		r.inbox = from
		return ucs.ErrClosed
	}
	r.stage, r.staged = stageConnect, time.Now()
	r.l.notifyFreed()
	return nil
}
