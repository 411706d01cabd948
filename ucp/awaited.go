package ucp

import "github.com/gucx/gucx/ucs"

// awaitPeer makes a request wait for a message of the peer: an acknowledgment, or the data. The request
// leaves the list of operations, since flushes and fences do not wait for receives of the peer.
func (r *Request) awaitPeer() {
	e := r.ep
	if r.place() == placeListed {
		e.unlist(r)
	}
	r.comp.Count++
	r.moveTo(placeAwaited)
	e.awaited.add(r)
}

// removeAwaited removes a complete request from EP.awaited.
func (r *Request) removeAwaited() {
	e := r.ep
	r.moveTo(placeNone)
	e.awaited.remove(r)
	e.answeredAll()
	e.onIdle()
}

// answeredAll is called when a request no longer awaits the peer. If no request awaits the peer any more, and EP.Close
// waits for that, Close continues.
func (e *EP) answeredAll() {
	if e.closeAwaitsPeer() && e.awaited.first == nil {
		e.w.schedule(e)
	}
}

// closeAwaitsPeer reports whether the EP disconnects when no request awaits the peer.
func (e *EP) closeAwaitsPeer() bool { return e.waiting != nil && e.waiting.closesWhenAnswered }

// continueClose continues EP.Close when no request awaits the peer. The last messages of this side may still be
// queued, so Close waits for operations once more.
func (e *EP) continueClose() {
	if e.closeAwaitsPeer() && e.awaited.first == nil && e.state == epClosing && !e.closing.ending {
		e.waiting.closesWhenAnswered = false
		e.disconnectWhenIdle()
	}
}

// endAwaited fails the requests that await the peer, which has disconnected or died, with st.
func (e *EP) endAwaited(st ucs.Status) {
	for r := e.awaited.first; r != nil; {
		next := r.next
		if r.place() != placeDelegated { // otherwise it completes with its child
			r.comp.Complete(st)
		}
		r = next
	}
}
