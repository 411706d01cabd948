package udcore

import (
	"errors"
	"sync"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// lostPorts contains the ports that no process uses, as the device has reported. Most devices
// report nothing; then the timeout detects it.
type lostPorts struct {
	mu    sync.Mutex
	noted []verbs.GID // reported ports; under mu
	due   []verbs.GID // ports whose datagrams have been handled after the next idle poll; used by the owner of the iface
}

// next returns the ports whose connections can fail now, and moves the reported ones to due; more
// reports whether there are any.
func (l *lostPorts) next() (gids []verbs.GID, more bool) {
	gids = l.due
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due, l.noted = l.noted, nil
	return gids, len(l.due) > 0
}

// noteUnreachable makes Progress fail the connections to a port. Any goroutine may call it.
func (it *Iface) noteUnreachable(gid verbs.GID) {
	it.lost.mu.Lock()
	it.lost.noted = append(it.lost.noted, gid)
	it.lost.mu.Unlock()
	it.wake.Raise()
}

// errNoProcess is the cause of a failure that the device has reported.
var errNoProcess = errors.New("no process uses the port of the peer")

// failUnreachable fails the connections to the ports that were reported before the last poll, which
// has found nothing, and frees those that only the peer used. So a FIN of such a peer has been
// handled.
func (it *Iface) failUnreachable() {
	it.wake.Lower()
	gids, more := it.lost.next()
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

// lostStatus returns the status of a connection if no process uses the peer's port.
func lostStatus(c *conn) ucs.Status {
	switch {
	case c.gone:
		return ucs.StatusPeerClosed
	case c.proto.State() == dgram.Connected:
		return ucs.StatusConnReset
	}
	return ucs.StatusUnreachable
}
