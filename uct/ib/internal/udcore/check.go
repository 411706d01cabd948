package udcore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
)

// Check implements uct.Checker. An idle EP sends a probe, which Progress of the peer acknowledges.
// The probe is retransmitted until the peer counts as dead. If packets are unacknowledged already,
// the EP requests an acknowledgement. An EP that has sent nothing connects.
func (e *EP) Check(c *uct.Completion) (pending bool, err error) {
	if e.err == nil && e.c.gone {
		e.it.fail(e.c, ucs.StatusPeerClosed, nil)
	}
	if e.err != nil {
		return false, e.err
	}
	if e.it.flushes.left == 0 {
		return false, uct.ErrNoResource
	}
	if e.c.proto.Unacked() == 0 {
		p, err := e.reserve(0)
		if err != nil {
			return false, err
		}
		e.push(p, dgram.ProbeID, 0)
	}
	return e.Flush(c)
}
