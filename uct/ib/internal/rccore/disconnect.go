package rccore

import (
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// A closed EP tells its peer, behind everything that it has posted, by a message that
// the peer's device acknowledges without the peer's help. Only then does the QP go: a
// peer that posts to a QP that is gone learns of it by a timeout.

// disconnectLimit bounds how long a closed EP waits for its peer's device: a thousand
// times what one takes that is there. After it, what is in flight is canceled.
const disconnectLimit = 100 * time.Millisecond

// disconnect tells the peer that the EP is closed. Without room for the message the peer
// is not told.
func (e *EP) disconnect() error {
	if !e.slot() {
		return e.toERR()
	}
	wr := e.it.fullWR(verbs.OpSendWithImm, verbs.SendSignaled)
	wr.Imm = uint32(rcwire.Disconnect())
	e.Sig = e.PI + 1
	if e.post(&e.it.full) != nil {
		return e.toERR()
	}
	e.leaveBy = time.Now().Add(disconnectLimit)
	e.it.raise(attnBacklog)
	return nil
}

// leaveInTime moves the QP of a closed EP to ERR when its peer has taken too long to
// take notice. Until then it has finish look again.
func (e *EP) leaveInTime() {
	switch {
	case e.leaveBy.IsZero():
	case time.Now().Before(e.leaveBy):
		e.it.raise(attnBacklog)
	default:
		e.cutOff()
	}
}

// cutOff ends what a closed EP has in flight.
func (e *EP) cutOff() {
	e.leaveBy = time.Time{}
	_ = e.toERR() // a device that refuses flushes nothing either; the iface's Close is bounded
}

// peerClosed handles the peer's message that it has closed its EP.
func (it *Iface) peerClosed(e *EP) {
	if e.state != stateClosed {
		it.fail(e, ucs.StatusPeerClosed, nil)
		return
	}
	e.cutOff() // both leave: neither waits for the other
	e.settle()
}

// patience is how long the iface may be left without a Progress; 0 if nothing waits for
// a time.
func (it *Iface) patience() time.Duration {
	for _, e := range it.closing.All() {
		if !e.leaveBy.IsZero() {
			return disconnectLimit
		}
	}
	return 0
}
