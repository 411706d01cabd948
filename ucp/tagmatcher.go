package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/uct"
)

// tagMatcher sends tagged messages and posts receives where transports match messages in hardware,
// too. Worker.tag.matcher is nil if only the table of the worker matches.
type tagMatcher interface {
	// send is TagSend for a message that the fast path did not send, or TagSendSync if sync is set.
	send(e *EP, tag uint64, buf []byte, p *OpParams, sync bool) (*Request, error)
	// start starts a send that has a request.
	start(r *Request) (*Request, error)
	// admitted is called when a message that start has started is sent in its turn, because there is credit for it.
	admitted(r *Request)
	// receiveInto is TagRecv with checked parameters.
	receiveInto(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error)
	// receive posts a receive. The caller owns the request.
	receive(v *tagRecv, tag, mask uint64) (*Request, error)
	// probe returns the unexpected message that a receive would match, or nil.
	probe(tag, mask uint64) *match.Msg[*TagMessage]
	// cancelAll cancels the receives that have not matched, when the worker closes.
	cancelAll()
	// withArrivalOrder returns a handler of tagged messages that counts them and calls h.
	withArrivalOrder(h uct.AMHandler) uct.AMHandler
	// paused reports whether receives are neither in the table of the worker nor in the transport.
	paused() bool
	// competes reports whether the transport matches messages of peers other than that of m. listed is called when the peer of m
	// has queued a message with a tag, because it lacks credit.
	competes(m *messages) bool
	listed(m *messages, tag uint64)
	// refuse is called when the peer of m may no longer send tagged messages.
	refuse(m *messages)
}

// withArrivalOrder returns h, or the handler of the matcher that calls h.
func (w *Worker) withArrivalOrder(h uct.AMHandler) uct.AMHandler {
	if w.tag.matcher == nil {
		return h
	}
	return w.tag.matcher.withArrivalOrder(h)
}

func (w *Worker) refuseSource(m *messages) {
	if w.tag.matcher != nil {
		w.tag.matcher.refuse(m)
	}
}
