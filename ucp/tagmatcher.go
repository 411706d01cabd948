package ucp

import (
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/uct"
)

// tagMatcher sends tagged messages and posts their receives, where receive queues of transports also match
// messages. Worker.tag.matcher is nil where only the table of the worker matches.
type tagMatcher interface {
	// send is TagSend of a message that does not go in one call, and TagSendSync if sync is set.
	send(e *EP, tag uint64, buf []byte, p *OpParams, sync bool) (*Request, error)
	// start sends a message that has a request.
	start(r *Request) (*Request, error)
	// receiveInto is TagRecv, of parameters that have been checked.
	receiveInto(buf []byte, tag, mask uint64, info *TagInfo, p *OpParams) (*Request, error)
	// receive posts a receive. The request is the caller's.
	receive(v *tagRecv, tag, mask uint64) (*Request, error)
	// probe returns the message that a receive would get, or nil.
	probe(tag, mask uint64) *match.Msg[*TagMessage]
	// cancelAll cancels the receives without a message when the worker closes.
	cancelAll()
	// counted returns a handler of tagged messages that counts them and calls h.
	counted(h uct.AMHandler) uct.AMHandler
	// refuse is called when the peer of m may not send tagged messages any more.
	refuse(m *messages)
}

// counted returns h, or the handler of the matcher that calls h.
func (w *Worker) counted(h uct.AMHandler) uct.AMHandler {
	if w.tag.matcher == nil {
		return h
	}
	return w.tag.matcher.counted(h)
}

// refuseSource is called when the peer of m may not send tagged messages any more.
func (w *Worker) refuseSource(m *messages) {
	if w.tag.matcher != nil {
		w.tag.matcher.refuse(m)
	}
}
