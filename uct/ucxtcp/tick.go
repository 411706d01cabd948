package ucxtcp

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/alive"
)

// deadlineTick is the interval at which deadlines of handshakes are checked.
const deadlineTick = 20 * time.Millisecond

// ticker watches the timer of an iface.
type ticker struct{ it *Iface }

// Ready implements epoll.Watcher. It checks all deadlines.
func (tk *ticker) Ready(uint32) int {
	it := tk.it
	it.poll.ReadTimer()
	now := time.Now()
	it.expireUnnamed(now)
	it.expireEPs(now)
	it.expireClosing(now)
	it.listener.resume(now)
	it.checkHosts(now)
	_ = it.poll.SetTick(it.nextTick())
	return 0
}

// expireEPs fails the EPs that are not connected at their deadline.
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

// expireClosing fails the closing connections that the peer has not closed in time.
func (it *Iface) expireClosing(now time.Time) {
	for _, c := range slices.Clone(it.conns.All()) {
		if c.closing && now.After(c.deadline) {
			c.fail(fmt.Errorf("%w: the peer has not closed the connection", ucs.ErrTimedOut))
		}
	}
}

// nextTick returns the time until the next tick is needed; 0 if none is needed.
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

// tickEvery makes the timer tick at least every d.
func (it *Iface) tickEvery(d time.Duration) error {
	if now := it.poll.TickInterval(); now > 0 && now <= d {
		return nil
	}
	return it.poll.SetTick(d)
}

// hostCheckInterval is the time between two checks of the peers' hosts.
func (it *Iface) hostCheckInterval() time.Duration { return alive.CheckInterval(it.cfg.UserTimeout) }

// trackAcks makes the timer check the host of the peer until the host has acknowledged everything.
func (c *Conn) trackAcks() {
	if c.unacked {
		return
	}
	c.unacked = true
	c.it.unacked = append(c.it.unacked, c)
	_ = c.it.tickEvery(c.it.hostCheckInterval())
}

// untrackAcks removes c from the checks.
func (c *Conn) untrackAcks() {
	if c.unacked {
		c.unacked = false
		i := slices.Index(c.it.unacked, c)
		c.it.unacked = slices.Delete(c.it.unacked, i, i+1)
	}
}

// checkHosts fails the connections to dead hosts, and stops checking those without unacknowledged
// bytes. The interval between two checks is hostCheckInterval, minus the tolerated delay of a tick.
func (it *Iface) checkHosts(now time.Time) {
	if now.Before(it.nextHostCheck) {
		return
	}
	it.nextHostCheck = now.Add(it.hostCheckInterval() - deadlineTick/2)
	rest := it.unacked[:0]
	for _, c := range it.unacked {
		if c.state == connOpen && c.checkHost() || c.state == connBroken { // discard removes a broken one
			rest = append(rest, c)
		} else {
			c.unacked = false
		}
	}
	clear(it.unacked[len(rest):])
	it.unacked = rest
}

// checkHost reports whether bytes are still unacknowledged.
func (c *Conn) checkHost() bool {
	info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false // not a connected TCP socket
	}
	switch c.host.Check(info) {
	case alive.Idle:
		return false
	case alive.Gone:
		c.adopted = false
		c.fail(fmt.Errorf("%w: the peer's host has acknowledged nothing for %v", ucs.ErrTimedOut, c.it.cfg.UserTimeout))
	}
	return true
}
