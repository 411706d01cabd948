package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// Close implements uct.Iface. Posted requests are still written, and Close waits at most
// Config.Linger until the hosts of the peers have acknowledged them. Idempotent.
func (it *iface) Close() error {
	if it.closed {
		return nil
	}
	it.closed = true
	it.linger()
	defer it.UpdateStats()
	for e := range it.tags.All() {
		e.PurgePending(func(*uct.PendingReq) {})
		_ = e.Close() // never fails
	}
	it.completeWritten()
	for _, c := range it.allConns() {
		c.fail(fmt.Errorf("%w: iface closed", ucs.ErrCanceled))
	}
	for _, c := range it.broken {
		c.cleanUp(ucs.StatusCanceled)
	}
	it.broken = nil
	for i := len(it.unproven.all) - 1; i >= 0; i-- {
		if s := it.unproven.all[i].in; s != nil {
			s.drop()
		}
	}
	err := it.undo.Run()
	if it.tunnels != nil {
		it.tunnels.Wait()
	}
	return err
}

// allConns returns the connections of the iface: those in the list, and the accepting side of a
// connection to the own iface, which only the poller has.
func (it *iface) allConns() []*conn {
	var all []*conn
	all = append(all, it.known.All()...)
	for _, w := range it.poll.All() {
		if c, ok := w.(*conn); ok && c.main == nil && it.table[c.key] != c {
			all = append(all, c)
		}
	}
	return all
}

// lingerStep is the pause between two checks in linger. lingerMax is the maximum time that one
// check and pause count against the limit.
const (
	lingerStep = 2 * time.Millisecond
	lingerMax  = 5 * lingerStep
)

// linger writes the queues and half-closes all connections, and waits until the hosts of the peers
// have acknowledged everything. The sockets must remain open until then: after a close, the kernel
// would drop unsent bytes if the peer sent anything.
func (it *iface) linger() {
	limit := timelimit.WithMost(it.cfg.Linger, lingerMax)
	open := it.allConns()
	for len(open) > 0 {
		rest := open[:0]
		for _, c := range open {
			if !c.drain() {
				rest = append(rest, c)
			}
		}
		if open = rest; len(open) == 0 || limit.Over() {
			return
		}
		fds := []unix.PollFd{{Fd: int32(open[0].fd), Events: unix.POLLRDHUP}}
		if open[0].tx.blocked {
			fds[0].Events |= unix.POLLOUT
		}
		_, _ = unix.Poll(fds, int(lingerStep.Milliseconds()))
		open[0].tx.blocked = false
	}
}

// sendBye sends BYE if the queue is empty.
func (c *conn) sendBye() {
	if c.sentBye || !c.tx.empty() {
		return
	}
	if b := c.makeRoom(frameLen); b != nil {
		c.sentBye = true
		putHeader(b, frameBye, 0, 0)
		c.tx.tail += frameLen
		c.flush()
	}
}

// drain writes the queue, half-closes the socket and reports whether the peer's host has
// acknowledged everything or the connection has failed. It discards received bytes.
func (c *conn) drain() bool {
	if c.state != connOpen {
		return true
	}
	c.flush()
	if c.state != connOpen || c.tx.sendErr != 0 {
		return true
	}
	if c.sendBye(); !c.tx.empty() {
		return false
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	over, quiet := c.discardArrivals()
	if over || !quiet {
		return over
	}
	if c.tun != nil {
		return c.tun.Delivered()
	}
	unsent, err := unix.IoctlGetInt(c.fd, unix.SIOCOUTQ)
	return err != nil || unsent == 0
}

// discardReads is the maximum number of consecutive reads in discardArrivals, so that a peer that
// sends continuously does not delay the others.
const discardReads = 64

// discardArrivals discards received bytes. over: the peer has closed the connection, or it has
// failed. quiet: all bytes were read.
func (c *conn) discardArrivals() (over, quiet bool) {
	for range discardReads {
		n, errno := c.it.io.Recv(c.fd, c.rx.buf)
		if n == 0 && !sockio.Retry(errno) {
			return true, true
		}
		if errno != 0 {
			return false, true
		}
	}
	return false, false
}
