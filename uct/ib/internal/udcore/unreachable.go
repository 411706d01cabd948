package udcore

import (
	"errors"
	"sync"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// lostPorts are the ports of which the device says that nobody is there. Most devices
// say nothing; then only silence tells.
type lostPorts struct {
	mu    sync.Mutex
	noted []verbs.GID // under mu
	due   []verbs.GID // the owner's: what they had sent has been taken in by the next idle poll
}

// turn returns the ports whose connections can fail now, and makes those due that were
// noted meanwhile: more reports whether there are some.
func (l *lostPorts) turn() (gids []verbs.GID, more bool) {
	gids = l.due
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due, l.noted = l.noted, nil
	return gids, len(l.due) > 0
}

// noteUnreachable has Progress fail the connections to a port. Any goroutine.
func (it *Iface) noteUnreachable(gid verbs.GID) {
	it.lost.mu.Lock()
	it.lost.noted = append(it.lost.noted, gid)
	it.lost.mu.Unlock()
	it.wake.Raise()
}

// errNoProcess is the cause where the device has said so.
var errNoProcess = errors.New("no process is there")

// failUnreachable fails the connections to the ports that were noted before the last poll,
// which has found nothing, and frees those that only the peer used. A FIN from there has
// come then.
func (it *Iface) failUnreachable() {
	it.wake.Lower()
	gids, more := it.lost.turn()
	if more {
		it.wake.Raise()
	}
	for _, gid := range gids {
		for c := range it.conns.All() {
			if c.peer.key.dev.GID == gid {
				it.fail(c, lostStatus(c), errNoProcess)
			}
		}
	}
}

// lostStatus is how a connection ends when nobody is at the peer's port.
func lostStatus(c *conn) ucs.Status {
	switch {
	case c.gone:
		return ucs.StatusPeerClosed
	case c.proto.State() == dgram.Connected:
		return ucs.StatusConnReset
	}
	return ucs.StatusUnreachable
}
