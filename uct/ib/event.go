package ib

import (
	"sync"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// EventSink receives asynchronous events of a device.
type EventSink interface {
	// AsyncEvent is called on the goroutine of the MD, not on that of the iface. It must post an
	// event and return.
	AsyncEvent(ev verbs.AsyncEvent)
}

// eventLoop passes the events of a context to the subscribed sinks.
type eventLoop struct {
	ctx  *verbs.Context
	done chan struct{}

	mu    sync.Mutex
	sinks map[EventSink]struct{}
}

func startEventLoop(ctx *verbs.Context) *eventLoop {
	l := &eventLoop{ctx: ctx, done: make(chan struct{}), sinks: map[EventSink]struct{}{}}
	go l.run()
	return l
}

func (l *eventLoop) run() {
	defer close(l.done)
	for {
		ev, err := l.ctx.NextAsyncEvent()
		if err != nil {
			return // the context is closed
		}
		l.deliver(ev)
	}
}

// deliver passes an event of a QP to the sink that is its user context, and any other one to all sinks.
func (l *eventLoop) deliver(ev verbs.AsyncEvent) {
	owner := ownerOf(ev.QP)
	l.mu.Lock()
	defer l.mu.Unlock()
	if owner == nil {
		for s := range l.sinks {
			s.AsyncEvent(ev)
		}
	} else if _, subscribed := l.sinks[owner]; subscribed {
		owner.AsyncEvent(ev)
	}
}

// ownerOf returns the sink that made qp, or nil.
func ownerOf(qp *verbs.QP) EventSink {
	if qp == nil {
		return nil
	}
	owner, _ := qp.UserContext().(EventSink)
	return owner
}

// wait waits until the goroutine has ended, after the context was closed.
func (l *eventLoop) wait() { <-l.done }

// Subscribe delivers to s the asynchronous events of QPs whose user context is s, of QPs without a
// sink as user context, and those without a QP.
func (md *MD) Subscribe(s EventSink) {
	md.events.mu.Lock()
	defer md.events.mu.Unlock()
	md.events.sinks[s] = struct{}{}
}

// Unsubscribe ends a subscription. After it has returned, s is not called.
func (md *MD) Unsubscribe(s EventSink) {
	md.events.mu.Lock()
	defer md.events.mu.Unlock()
	delete(md.events.sinks, s)
}
