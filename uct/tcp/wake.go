package tcp

import "github.com/gucx/gucx/uct"

// EventFD implements uct.Waker: the epoll descriptor.
func (it *Iface) EventFD() int { return it.poll.FD() }

// Arm implements uct.Waker. Descriptors stay readable until Progress has read
// them, so arming takes nothing but a look; sends that wait for their socket are
// asked to be reported.
func (it *Iface) Arm(ev uct.Events) error {
	it.pollEpollNext()
	if len(it.broken) > 0 || it.written.first != nil || it.freed && it.arb.Len() > 0 {
		return uct.ErrBusy
	}
	for _, c := range it.dirty {
		if c.state != connOpen {
			continue
		}
		if !c.tx.blocked && !c.tx.empty() {
			return uct.ErrBusy
		}
		if c.tx.blocked {
			c.watchOut(true)
		}
	}
	if it.poll.Readable() {
		return uct.ErrBusy
	}
	return nil
}
