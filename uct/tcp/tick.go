package tcp

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
type ticker struct{ it *iface }

// Ready implements epoll.Watcher. It checks all deadlines.
func (tk *ticker) Ready(uint32) int {
	it := tk.it
	it.poll.ReadTimer()
	now := time.Now()
	it.extendDeadlines(now)
	it.expireUnproven(now)
	for i := len(it.opening) - 1; i >= 0; i-- {
		if c := it.opening[i]; now.After(c.deadline) {
			c.fail(c.timeoutError())
		}
	}
	it.dialQueued(now)
	it.resumeAccept(now)
	it.checkHosts(now)
	it.checkUnusedConns(now)
	_ = it.poll.SetTick(it.nextTick())
	return 0
}

// maxTickDelay is the tolerated delay of a tick. A longer delay means that the worker has not
// called Progress and has not read what peers have sent, so it does not count against the deadlines
// of handshakes.
const maxTickDelay = 10 * deadlineTick

// extendDeadlines extends the deadlines of handshakes by the time in which the worker has not
// called Progress. No remaining time exceeds the whole timeout, because some handshakes have begun
// in this time.
func (it *iface) extendDeadlines(now time.Time) {
	late := now.Sub(it.lastTick) - it.poll.TickInterval() - maxTickDelay
	it.lastTick = now
	if late <= 0 {
		return
	}
	for _, c := range it.opening {
		c.deadline = earlier(c.deadline.Add(late), now.Add(c.openWithin()))
	}
	for _, p := range it.unproven.all {
		p.deadline = earlier(p.deadline.Add(late), now.Add(it.cfg.HelloTimeout))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// timeoutError returns the error of a connection that has not opened in time.
func (c *conn) timeoutError() error {
	if !c.path.isKnown() {
		return fmt.Errorf("the peer has not connected: %w", ucs.ErrTimedOut)
	}
	return fmt.Errorf("connect: %w", ucs.ErrTimedOut)
}

// nextTick returns the time until the next tick is needed; 0 if none is needed.
func (it *iface) nextTick() (next time.Duration) {
	pending, paused := time.Duration(0), time.Duration(0)
	if len(it.opening)+len(it.dialQueue) > 0 {
		pending = deadlineTick
	}
	if it.acceptPaused {
		paused = it.acceptPause
	}
	for _, d := range [...]time.Duration{pending, paused, it.unprovenTick(), it.hostCheckTick(), it.unusedTick} {
		if d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	return next
}

// tickEvery makes the timer tick at least every d.
func (it *iface) tickEvery(d time.Duration) error {
	if now := it.poll.TickInterval(); now > 0 && now <= d {
		return nil
	}
	it.lastTick = time.Now()
	return it.poll.SetTick(d)
}

// hostCheckInterval is the time between two checks of the peers' hosts.
func (it *iface) hostCheckInterval() time.Duration { return alive.CheckInterval(it.cfg.UserTimeout) }

// hostCheckTick returns hostCheckInterval if there are unacknowledged bytes, else 0.
func (it *iface) hostCheckTick() time.Duration {
	if len(it.unacked) == 0 {
		return 0
	}
	return it.hostCheckInterval()
}

// trackAcks makes the timer check the host of c's peer until the host has acknowledged everything.
// A tunnel has its own check.
func (c *conn) trackAcks() {
	it := c.it
	if c.unacked || c.tun != nil {
		return
	}
	c.unacked = true
	it.unacked = append(it.unacked, c)
	_ = it.tickEvery(it.hostCheckInterval())
}

// untrackAcks removes c from the checks.
func (c *conn) untrackAcks() {
	if !c.unacked {
		return
	}
	c.unacked = false
	i := slices.Index(c.it.unacked, c)
	c.it.unacked = slices.Delete(c.it.unacked, i, i+1)
}

// checkHosts fails the connections to dead hosts, and stops checking those without unacknowledged
// bytes. The interval between two checks is hostCheckInterval, minus the tolerated delay of a tick.
func (it *iface) checkHosts(now time.Time) {
	if now.Before(it.nextHostCheck) {
		return
	}
	it.nextHostCheck = now.Add(it.hostCheckInterval() - deadlineTick/2)
	rest := it.unacked[:0]
	for _, c := range it.unacked {
		if c.state != connOpen || c.checkHost() { // cleanUp removes a broken one
			rest = append(rest, c)
		} else {
			c.unacked = false
		}
	}
	clear(it.unacked[len(rest):])
	it.unacked = rest
}

// checkHost reports whether bytes are still unacknowledged.
func (c *conn) checkHost() bool {
	info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false // not a connected TCP socket
	}
	switch c.host.Check(info) {
	case alive.Idle:
		return false
	case alive.Gone:
		c.fail(fmt.Errorf("%w: the peer's host has acknowledged nothing for %v", ucs.ErrTimedOut, c.it.cfg.UserTimeout))
		return false
	}
	return true
}
