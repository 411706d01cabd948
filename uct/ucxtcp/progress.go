package ucxtcp

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// How Progress divides its time, as in package tcp: it reads connections that were active lately
// directly, and polls epoll only at some calls, for the other connections.
const (
	maxHot        = 4    // maximum number of hot connections, which Progress reads directly
	maxEmptyReads = 4096 // consecutive empty reads after which a connection is no longer hot
	epollAllHot   = 64   // calls of Progress between polls of epoll if all connections are hot
	epollSomeHot  = 4    // if only some are hot
	epollIdle     = 32   // if none is hot, and epoll reported nothing lately
	maxEmptyPolls = 1024 // consecutive empty polls of epoll after which epollIdle applies
	streamReads   = 8    // during a stream of sends, one of so many calls reads
)

// Progress implements uct.Iface.
func (it *Iface) Progress() int {
	it.tick++
	n := 0
	for i := 0; i < len(it.hot); i++ {
		n += it.hot[i].pollHot()
	}
	if it.tick >= it.pollEpollAt {
		n += it.pollEpoll()
	}
	if len(it.resumed) > 0 {
		n += it.parseResumed()
	}
	if len(it.dirty) > 0 {
		it.writeDirty()
	}
	if it.written.first != nil {
		n += it.completeWritten()
	}
	if len(it.broken)+len(it.failed) > 0 {
		n += it.cleanBroken()
	}
	if it.freed && it.arb.Len() > 0 {
		it.freed = false
		n += it.arb.Dispatch(nil)
		it.writeDirty()
	}
	return n
}

// pollHot reads a hot connection. While the caller posts a stream of messages, it skips most reads.
func (c *Conn) pollHot() int {
	if c.tx.streak >= streamStreak && c.tx.posts != c.tx.seen && c.it.tick%streamReads != 0 {
		return 0
	}
	n := c.receive()
	if c.emptyReads > maxEmptyReads {
		c.it.removeHot(c)
	}
	return n
}

// pollEpoll polls epoll and schedules the next poll.
func (it *Iface) pollEpoll() int {
	n, any := it.poll.Poll()
	if any {
		it.emptyPolls = 0
	} else {
		it.emptyPolls++
	}
	wait := uint(1)
	switch {
	case len(it.hot) > 0 && len(it.hot) == it.conns.Len() && it.connecting == 0:
		wait = epollAllHot
	case len(it.hot) > 0:
		wait = epollSomeHot
	case it.emptyPolls > maxEmptyPolls:
		wait = epollIdle
	}
	it.pollEpollAt = it.tick + wait
	return n
}

// pollEpollNext makes the next Progress poll epoll.
func (it *Iface) pollEpollNext() { it.emptyPolls, it.pollEpollAt = 0, it.tick }

// makeHot makes c hot. If there are too many hot connections, it replaces the one with the most
// empty reads.
func (it *Iface) makeHot(c *Conn) {
	c.emptyReads = 0
	if c.hot {
		return
	}
	if len(it.hot) == maxHot {
		coldest := slices.MaxFunc(it.hot, func(a, b *Conn) int { return a.emptyReads - b.emptyReads })
		if coldest.emptyReads == 0 {
			return
		}
		it.removeHot(coldest)
	}
	c.hot = true
	it.hot = append(it.hot, c)
}

// removeHot makes c not hot.
func (it *Iface) removeHot(c *Conn) {
	if c.hot {
		c.hot = false
		i := slices.Index(it.hot, c)
		it.hot = slices.Delete(it.hot, i, i+1)
	}
}

// parseResumed delivers the messages that resumed connections have read before.
func (it *Iface) parseResumed() (n int) {
	for range len(it.resumed) { // handlers may append
		c := it.resumed[0]
		it.resumed = slices.Delete(it.resumed, 0, 1)
		c.resumed = false
		if c.state == connOpen && !c.held {
			n += c.parse()
		}
	}
	return n
}

// writeDirty calls progressTx for the dirty connections, which writes their collected messages.
func (it *Iface) writeDirty() {
	it.dirty, it.wasDirty = it.wasDirty[:0], it.dirty
	for i, c := range it.wasDirty {
		it.wasDirty[i] = nil
		c.dirty = false
		if c.progressTx() {
			c.markDirty()
		}
	}
}

// Push implements uct.Pusher.
func (it *Iface) Push() {
	for _, c := range it.dirty {
		if c.state == connOpen && !c.tx.blocked {
			c.flush()
		}
	}
}

// completeWritten completes the zcopy sends that are written.
func (it *Iface) completeWritten() (n int) {
	for o := it.written.pop(); o != nil; o = it.written.pop() {
		it.complete(o, ucs.StatusOK)
		n++
	}
	return n
}

// cleanBroken cleans up the broken connections, and reports the failure of EPs without a
// connection.
func (it *Iface) cleanBroken() (n int) {
	for i := 0; i < len(it.broken); i++ { // callbacks may append
		c := it.broken[i]
		it.broken[i] = nil
		n += 1 + c.cleanUp(statusOf(c.err))
	}
	it.broken = it.broken[:0]
	for i := 0; i < len(it.failed); i++ {
		e := it.failed[i]
		it.failed[i] = nil
		n += 1 + e.completeFlushes(e.status)
		e.reportFailed()
	}
	it.failed = it.failed[:0]
	it.freed = true
	return n
}

// statusOf returns the status of operations that failed because of err.
func statusOf(err error) ucs.Status {
	for _, t := range []struct {
		err error
		st  ucs.Status
	}{
		{ucs.ErrPeerClosed, ucs.StatusPeerClosed},
		{ucs.ErrTimedOut, ucs.StatusTimedOut},
		{uct.ErrUnreachable, ucs.StatusUnreachable},
		{ucs.ErrRejected, ucs.StatusRejected},
		{ucs.ErrCanceled, ucs.StatusCanceled},
		{ucs.ErrConnReset, ucs.StatusConnReset},
	} {
		if errors.Is(err, t.err) {
			return t.st
		}
	}
	return ucs.StatusIOError
}
