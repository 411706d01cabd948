package tcp

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/ucs"
)

// How Progress divides its time. A read without data costs about 0.2 µs. A poll of epoll costs 0.4
// µs, and is followed by the read. So Progress reads connections that were active lately directly,
// and polls epoll only at some calls, for the other connections.
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
func (it *iface) Progress() int {
	it.tick++
	n := 0
	for i := 0; i < len(it.hot); i++ {
		n += it.hot[i].pollHot()
	}
	if it.tick >= it.pollEpollAt {
		n += it.pollEpoll()
	}
	if len(it.dirty) > 0 {
		it.writeDirty()
	}
	if it.written.first != nil {
		n += it.completeWritten()
	}
	if len(it.broken) > 0 {
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
func (c *conn) pollHot() int {
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
func (it *iface) pollEpoll() int {
	n, any := it.poll.Poll()
	if any {
		it.emptyPolls = 0
	} else {
		it.emptyPolls++
	}
	wait := uint(1)
	switch {
	case len(it.hot) > 0 && len(it.hot) == it.openCount && len(it.opening)+len(it.dialQueue) == 0:
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
func (it *iface) pollEpollNext() { it.emptyPolls, it.pollEpollAt = 0, it.tick }

// makeHot makes c hot. If there are too many hot connections, it replaces the one with the most empty
// reads.
func (it *iface) makeHot(c *conn) {
	c.emptyReads = 0
	if c.hot {
		return
	}
	if len(it.hot) == maxHot {
		coldest := slices.MaxFunc(it.hot, func(a, b *conn) int { return a.emptyReads - b.emptyReads })
		if coldest.emptyReads == 0 {
			return
		}
		it.removeHot(coldest)
	}
	c.hot = true
	it.hot = append(it.hot, c)
}

// removeHot makes c not hot.
func (it *iface) removeHot(c *conn) {
	if !c.hot {
		return
	}
	c.hot = false
	i := slices.Index(it.hot, c)
	it.hot = slices.Delete(it.hot, i, i+1)
}

// writeDirty calls progressTx for the dirty connections, which writes their collected messages.
func (it *iface) writeDirty() {
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
func (it *iface) Push() {
	for _, c := range it.dirty {
		if c.state == connOpen && !c.tx.blocked && !c.tx.empty() {
			c.flush()
		}
	}
}

// completeWritten completes the active messages that are written.
func (it *iface) completeWritten() (n int) {
	for o := it.written.pop(); o != nil; o = it.written.pop() {
		it.complete(o, ucs.StatusOK)
		n++
	}
	return n
}

// cleanBroken cleans up the broken connections.
func (it *iface) cleanBroken() (n int) {
	for i := 0; i < len(it.broken); i++ { // callbacks may append
		c := it.broken[i]
		it.broken[i] = nil
		if n++; c.state == connReleased {
			c.closeReleased()
			continue
		}
		n += c.cleanUp(statusOf(c.err))
	}
	it.broken = it.broken[:0]
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
		{ucs.ErrUnreachable, ucs.StatusUnreachable},
		{ucs.ErrRejected, ucs.StatusRejected},
		{ucs.ErrConnReset, ucs.StatusConnReset},
	} {
		if errors.Is(err, t.err) {
			return t.st
		}
	}
	return ucs.StatusIOError
}
