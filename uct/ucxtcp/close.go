package ucxtcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// Close implements uct.Iface. Posted messages are still written, and Close waits at most
// Config.Linger until the hosts of the peers have acknowledged them. Idempotent.
func (it *Iface) Close() error {
	if it.closed {
		return nil
	}
	it.closed = true
	it.linger()
	for it.eps.Len() > 0 {
		e := it.eps.All()[0]
		e.PurgePending(func(*uct.PendingReq) {})
		_ = e.Close() // never fails
	}
	it.completeWritten()
	for it.conns.Len() > 0 || len(it.broken) > 0 {
		for i := 0; i < len(it.broken); i++ { // callbacks may append
			it.broken[i].cleanUp(ucs.StatusCanceled)
		}
		it.broken = it.broken[:0]
		if it.conns.Len() > 0 {
			c := it.conns.All()[0]
			c.ep = nil
			if c.handshaken {
				c.fail(fmt.Errorf("%w: iface closed", ucs.ErrCanceled))
			} else {
				c.discard()
			}
		}
	}
	return it.undo.Run()
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
func (it *Iface) linger() {
	limit := timelimit.WithMost(it.cfg.Linger, lingerMax)
	open := append([]*Conn(nil), it.conns.All()...)
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

// drain writes the queue, half-closes the socket and reports whether the peer's host has
// acknowledged everything or the connection has failed. It discards received bytes.
func (c *Conn) drain() bool {
	if c.state != connOpen {
		return true
	}
	if e := c.ep; e != nil && e.sends {
		c.sendFin()
	}
	c.flush()
	if c.state != connOpen || c.tx.sendErr != 0 {
		return true
	}
	if !c.tx.empty() || c.due != 0 {
		return false
	}
	_ = unix.Shutdown(c.fd, unix.SHUT_WR)
	over, quiet := c.discardArrivals()
	if over || !quiet {
		return over
	}
	unsent, err := unix.IoctlGetInt(c.fd, unix.SIOCOUTQ)
	return err != nil || unsent == 0
}

// discardReads is the maximum number of consecutive reads in discardArrivals, so that a peer that
// sends continuously does not delay the others.
const discardReads = 64

// discardArrivals discards received bytes. over: the peer has closed the connection, or it has
// failed. quiet: all bytes were read.
func (c *Conn) discardArrivals() (over, quiet bool) {
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
