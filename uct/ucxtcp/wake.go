package ucxtcp

import "github.com/gucx/gucx/uct"

// EventFD implements uct.Waker. It returns the epoll descriptor.
func (it *Iface) EventFD() int { return it.poll.FD() }

// Arm implements uct.Waker. Descriptors remain readable until Progress has read them, so Arm only
// polls epoll and enables EPOLLOUT for blocked connections.
func (it *Iface) Arm(uct.Events) error {
	it.pollEpollNext()
	if !it.StillArmed() || it.poll.Readable() {
		return uct.ErrBusy
	}
	return nil
}

// StillArmed implements uct.ArmChecker. It enables EPOLLOUT for connections that have blocked since Arm.
func (it *Iface) StillArmed() bool {
	if len(it.broken)+len(it.failed)+len(it.resumed) > 0 || it.written.first != nil || it.freed && it.arb.Len() > 0 {
		return false
	}
	for _, c := range it.dirty {
		switch {
		case c.state != connOpen:
		case c.tx.sendErr != 0 || c.closing:
			return false
		case c.tx.blocked:
			c.tx.watchesOut = true
			c.setEvents()
		case !c.tx.empty() || c.due != 0:
			return false
		}
	}
	return true
}
