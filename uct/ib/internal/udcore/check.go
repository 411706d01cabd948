package udcore

import (
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
)

// Check implements uct.Checker. An idle EP sends a packet without a message. Progress of the
// peer acknowledges it as any other; until then the packet is repeated, up to the time after which
// the peer counts as dead. An EP that waits for acknowledgements asks for them. One that has sent
// nothing connects.
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
		p, err := e.admit(0)
		if err != nil {
			return false, err
		}
		e.push(p, dgram.ProbeID, 0)
	}
	return e.Flush(c)
}
