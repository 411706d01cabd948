package tcp

import "github.com/gucx/gucx/uct"

// EventFD implements uct.Waker. It returns the epoll descriptor.
func (it *iface) EventFD() int { return it.poll.FD() }

// Arm implements uct.Waker. Descriptors remain readable until Progress has read them, so Arm only
// polls epoll and enables EPOLLOUT for blocked connections.
func (it *iface) Arm(ev uct.Events) error {
	it.pollEpollNext()
	if !it.StillArmed() || it.poll.Readable() {
		return uct.ErrBusy
	}
	return nil
}

// StillArmed implements uct.ArmChecker. It enables EPOLLOUT for connections that have blocked since Arm, and lets the timer check
// the hosts of peers to which something was sent.
func (it *iface) StillArmed() bool {
	if len(it.broken) > 0 || it.written.first != nil || it.freed && it.arb.Len() > 0 {
		return false
	}
	for _, c := range it.dirty {
		if c.state != connOpen {
			continue
		}
		if !c.tx.blocked && !c.tx.empty() {
			return false
		}
		if c.tx.blocked {
			c.watchOut(true)
		}
		c.trackAcks()
	}
	return true
}
