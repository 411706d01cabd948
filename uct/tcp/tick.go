package tcp

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
	_ = it.poll.Tick(it.nextTick())
	return 0
}

// mostLate is how late a tick may be. What it is late beyond that counts for no handshake: the worker has made no
// progress, so what peers have sent by then has not been read.
const maxTickDelay = 10 * deadlineTick

// forgive moves the time limits of handshakes by the time in which the worker has made no progress. No handshake has
// more than its whole time left then: some have begun since.
func (it *Iface) extendDeadlines(now time.Time) {
	late := now.Sub(it.lastTick) - it.poll.Ticking() - maxTickDelay
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

// late is the error of a connection that has not opened in time.
func (c *conn) timeoutError() error {
	if !c.path.isKnown() {
		return fmt.Errorf("the peer has not connected: %w", ucs.ErrTimedOut)
	}
	return fmt.Errorf("connect: %w", ucs.ErrTimedOut)
}

// nextTick is the time between two ticks for what there is to look at; 0 if there is nothing.
func (it *Iface) nextTick() (next time.Duration) {
	pending, paused := time.Duration(0), time.Duration(0)
	if len(it.opening)+len(it.dialQueue) > 0 {
		pending = deadlineTick
	}
	if it.acceptPaused {
		paused = it.acceptPause
	}
	for _, d := range [...]time.Duration{pending, paused, it.unprovenTick(), it.hostCheckTick()} {
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
	it.lastTick = time.Now()
	return it.poll.Tick(d)
}

// peerEvery is the time between two looks for peers.
func (it *Iface) hostCheckInterval() time.Duration { return alive.Every(it.cfg.UserTimeout) }

// peerTick is peerEvery while there is something to look for, else 0.
func (it *Iface) hostCheckTick() time.Duration {
	if len(it.unacked) == 0 {
		return 0
	}
	return it.hostCheckInterval()
}

// expectAcks has the timer look for the peer of c as long as it has not acknowledged
// everything. A tunnel looks by itself.
func (c *conn) trackAcks() {
	it := c.it
	if c.unacked || c.tun != nil {
		return
	}
	c.unacked = true
	it.unacked = append(it.unacked, c)
	_ = it.tickEvery(it.hostCheckInterval())
}

// expectNoAcks is called when c is gone.
func (c *conn) untrackAcks() {
	if !c.unacked {
		return
	}
	c.unacked = false
	i := slices.Index(c.it.unacked, c)
	c.it.unacked = slices.Delete(c.it.unacked, i, i+1)
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
		if c.state != connOpen || c.checkHost() { // endAll takes out one that is broken
			rest = append(rest, c)
		} else {
			c.unacked = false
		}
	}
	clear(it.unacked[len(rest):])
	it.unacked = rest
}

// lookForPeer reports whether something is still under way.
func (c *conn) checkHost() bool {
	info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return false // not of a connected TCP socket
	}
	switch c.host.Look(info) {
	case alive.Idle:
		return false
	case alive.Gone:
		c.fail(fmt.Errorf("%w: the peer's host has acknowledged nothing for %v", ucs.ErrTimedOut, c.it.cfg.UserTimeout))
		return false
	}
	return true
}
