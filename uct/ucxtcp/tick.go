package ucxtcp

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/alive"
)

// deadlineTick is the time between two looks at the deadlines of handshakes.
const deadlineTick = 20 * time.Millisecond

// ticker is the watcher of an iface's timer.
type ticker struct{ it *Iface }

// Ready implements epoll.Watcher for the timer: it looks at all deadlines.
func (tk *ticker) Ready(uint32) int {
	it := tk.it
	it.poll.Ticked()
	now := time.Now()
	it.expireUnnamed(now)
	it.expireEPs(now)
	it.expireClosing(now)
	it.listener.resume(now)
	it.checkHosts(now)
	_ = it.poll.Tick(it.nextTick())
	return 0
}

// expireEPs fails the EPs that have not been connected in time.
func (it *Iface) expireEPs(now time.Time) {
	if it.connecting == 0 {
		return
	}
	for _, e := range slices.Clone(it.eps.All()) {
		if !e.deadline.IsZero() && now.After(e.deadline) {
			what := "connect"
			if !e.dials {
				what = "the peer has not connected"
			}
			e.fail(fmt.Errorf("%w: %s", ucs.ErrTimedOut, what))
		}
	}
}

// expireClosing closes connections whose peer has not closed in time.
func (it *Iface) expireClosing(now time.Time) {
	for _, c := range slices.Clone(it.conns.All()) {
		if c.closing && now.After(c.deadline) {
			c.fail(fmt.Errorf("%w: the peer has not closed the connection", ucs.ErrTimedOut))
		}
	}
}

// nextTick is the time between two ticks for what there is to look at; 0 if there is nothing.
func (it *Iface) nextTick() (next time.Duration) {
	connecting, paused, closing, peers := time.Duration(0), time.Duration(0), time.Duration(0), time.Duration(0)
	if it.connecting > 0 {
		connecting = deadlineTick
	}
	if it.listener.paused {
		paused = it.listener.pause
	}
	for _, c := range it.conns.All() {
		if c.closing {
			closing = deadlineTick
			break
		}
	}
	if len(it.unacked) > 0 {
		peers = it.hostCheckInterval()
	}
	for _, d := range [...]time.Duration{connecting, paused, closing, it.unnamedTick(), peers} {
		if d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	return next
}

// tickWithin makes the timer tick at least each d.
func (it *Iface) tickEvery(d time.Duration) error {
	if now := it.poll.Ticking(); now > 0 && now <= d {
		return nil
	}
	return it.poll.Tick(d)
}

// peerEvery is the time between two looks for peers.
func (it *Iface) hostCheckInterval() time.Duration { return alive.Every(it.cfg.UserTimeout) }

// expectAcks has the timer look for the host of the peer as long as it has not acknowledged everything.
func (c *Conn) trackAcks() {
	if c.unacked {
		return
	}
	c.unacked = true
	c.it.unacked = append(c.it.unacked, c)
	_ = c.it.tickEvery(c.it.hostCheckInterval())
}

// expectNoAcks is called when c is gone.
func (c *Conn) untrackAcks() {
	if c.unacked {
		c.unacked = false
		i := slices.Index(c.it.unacked, c)
		c.it.unacked = slices.Delete(c.it.unacked, i, i+1)
	}
}

// lookForPeers fails the connections whose peer's host is gone, and forgets those that have
// nothing under way. Looks are not closer to each other than peerEvery, but for what a tick
// may come late.
func (it *Iface) checkHosts(now time.Time) {
	if now.Before(it.nextHostCheck) {
		return
	}
	it.nextHostCheck = now.Add(it.hostCheckInterval() - deadlineTick/2)
	rest := it.unacked[:0]
	for _, c := range it.unacked {
		if c.state == connOpen && c.checkHost() || c.state == connBroken { // discard takes that one out
			rest = append(rest, c)
		} else {
			c.unacked = false
		}
	}
	clear(it.unacked[len(rest):])
	it.unacked = rest
}

// lookForPeer reports whether something is still under way.
func (c *Conn) checkHost() bool {
	info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false // not of a connected TCP socket
	}
	switch c.host.Look(info) {
	case alive.Idle:
		return false
	case alive.Gone:
		c.adopted = false
		c.fail(fmt.Errorf("%w: the peer's host has acknowledged nothing for %v", ucs.ErrTimedOut, c.it.cfg.UserTimeout))
	}
	return true
}
