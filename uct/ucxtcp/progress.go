package ucxtcp

import (
	"errors"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// How Progress divides its time, as in package tcp: connections that were active lately are read without
// asking epoll, and epoll is asked now and then for the others.
const (
	maxHot        = 4    // connections that are read directly
	maxEmptyReads = 4096 // reads in a row that find nothing, after which one is not
	epollAllHot   = 64   // calls between looks when every connection is read directly
	epollSomeHot  = 4    // when others are not
	epollIdle     = 32   // when nothing is read directly, and nothing happened lately
	maxEmptyPolls = 1024 // looks that find nothing, after which it is not lately
	streamReads   = 8    // a stream of sends reads at each eighth call
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

// pollHot reads a hot connection, but not at every call while messages are posted
// to it in a stream.
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

// look asks epoll, and decides when to do so again.
func (it *Iface) pollEpoll() int {
	n, any := it.poll.Look()
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

// lookSoon makes the next Progress ask epoll.
func (it *Iface) pollEpollNext() { it.emptyPolls, it.pollEpollAt = 0, it.tick }

// warm puts c among the connections that are read directly, in place of one that
// had nothing lately if they are too many.
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

// cool takes c out of the connections that are read directly.
func (it *Iface) removeHot(c *Conn) {
	if c.hot {
		c.hot = false
		i := slices.Index(it.hot, c)
		it.hot = slices.Delete(it.hot, i, i+1)
	}
}

// parseResumed delivers what resumed connections have read before.
func (it *Iface) parseResumed() (n int) {
	for range len(it.resumed) { // handlers may add more
		c := it.resumed[0]
		it.resumed = slices.Delete(it.resumed, 0, 1)
		c.resumed = false
		if c.state == connOpen && !c.held {
			n += c.parse()
		}
	}
	return n
}

// writeJoined writes what was joined on all connections.
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

// finish runs the completions of messages that were written.
func (it *Iface) completeWritten() (n int) {
	for o := it.written.pop(); o != nil; o = it.written.pop() {
		it.complete(o, ucs.StatusOK)
		n++
	}
	return n
}

// cleanBroken cleans up after the connections that have failed, and tells EPs that have failed without one.
func (it *Iface) cleanBroken() (n int) {
	for i := 0; i < len(it.broken); i++ { // callbacks may add more
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

// statusOf is the status of operations that an error ended.
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
