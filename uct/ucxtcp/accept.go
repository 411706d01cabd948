package ucxtcp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct/internal/epoll"
)

// An accepted connection is unnamed while no EP of this side names its peer: it may be from anyone who
// reaches the port, as UCX's protocol has no authentication. There are at most MAX_UNNAMED, and MAX_PER_SOURCE
// of one source; one more evicts another. They have small buffers, and more memory only as far as
// unnamedMemory goes. They must send a connection request within HELLO_TIMEOUT, and the rest of each frame
// that has begun.

const (
	// smallRx is the receive buffer of an unnamed connection, in bytes. Most frames fit.
	smallRx = 2 << 10
	// unnamedMemory is how many bytes of longer buffers the unnamed connections of an iface have together;
	// more only if a single connection needs more.
	unnamedMemory = 16 << 20
	// acceptBatch is the number of connections accepted for one event.
	acceptBatch = 16
	// maxAcceptPause is the longest time for which the accept queue is ignored.
	maxAcceptPause = time.Second
	// sourceBits6 is the part of an IPv6 address that tells sources apart: a host may have all of a /64.
	sourceBits6 = 64
)

// listener is the listening socket.
type listener struct {
	it       *Iface
	slot     epoll.Watch
	fd       int
	paused   bool          // until resumeAt
	pause    time.Duration // the last pause; 0 when accepting works
	resumeAt time.Time
}

// Ready implements epoll.Watcher: it accepts.
func (l *listener) Ready(uint32) int {
	it := l.it
	for range acceptBatch {
		fd, from, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			l.pause = 0
			it.receiveConn(fd, addrPort(from))
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			if !it.evictOne(func(u *unnamed) bool { return u.c.frames == 0 }) { // else there is a descriptor next time
				l.pauseAccept()
			}
			return 0
		case unix.EAGAIN:
			return 0
		default: // of that connection, or EINTR
		}
	}
	return 0
}

// pauseAccept ignores the accept queue for a while, which doubles each time: the queue would be
// reported again and again while descriptors or memory are exhausted.
func (l *listener) pauseAccept() {
	l.paused = true
	l.pause = min(max(2*l.pause, deadlineTick), maxAcceptPause)
	l.resumeAt = time.Now().Add(l.pause)
	l.it.poll.Change(l.slot, 0)
	_ = l.it.tickEvery(l.pause)
}

func (l *listener) resume(now time.Time) {
	if l.paused && !now.Before(l.resumeAt) {
		l.paused = false
		l.it.poll.Change(l.slot, unix.EPOLLIN)
	}
}

// receiveConn begins the handshake of an accepted connection. Another one makes room for it.
func (it *Iface) receiveConn(fd int, from netip.AddrPort) {
	it.makeRoom(sourceOf(from.Addr()))
	c := &Conn{it: it, fd: fd, from: from, state: connMagic}
	if it.conns.Len() >= it.cfg.MaxConns && !it.evictOne(anyUnnamed) {
		_ = unix.Close(fd)
		it.limits.refused.Inc()
		return
	}
	if err := c.watch(unix.EPOLLIN); err != nil {
		it.limits.refused.Inc()
		it.logRefusal(c, err)
		return
	}
	c.rx.buf = make([]byte, smallRx)
	c.unnamed = it.unnamed.add(c, time.Now().Add(it.cfg.HelloTimeout))
	_ = it.tickEvery(deadlineTick)
	c.receive() // what it says is often there already
}

// makeRoom evicts unnamed connections until there may be one more of the source.
func (it *Iface) makeRoom(source netip.Prefix) {
	for it.unnamed.count[source] >= it.cfg.MaxPerSource {
		it.evictOne(func(u *unnamed) bool { return u.source == source })
	}
	for len(it.unnamed.all) >= it.maxUnnamed {
		it.evictOne(anyUnnamed)
	}
}

// unname makes an open connection, whose EP was closed, one of those that no EP names.
func (c *Conn) makeUnnamed() {
	it := c.it
	it.makeRoom(sourceOf(c.from.Addr()))
	c.unnamed = it.unnamed.add(c, time.Now().Add(it.cfg.HelloTimeout))
	_ = it.tickEvery(it.unnamedTick())
}

// sourceOf is where a connection comes from: an IPv4 address or a network of IPv6.
func sourceOf(ip netip.Addr) netip.Prefix {
	bits := ip.BitLen()
	if ip.Is6() {
		bits = sourceBits6
	}
	p, _ := ip.Prefix(bits)
	return p
}

// unnamed is one such connection.
type unnamed struct {
	source   netip.Prefix
	c        *Conn
	deadline time.Time  // by which it must have moved on
	at       rxPosition // where it stood when limit was set
	memory   int        // bytes of longer buffers
}

// rxMark is how far a connection has read.
type rxPosition struct {
	frames uint64
	read   int
}

func (c *Conn) rxPosition() rxPosition { return rxPosition{c.frames, c.rx.tail - c.rx.head} }

// unnamedSet is the unnamed connections of an iface.
type unnamedSet struct {
	all    []*unnamed // oldest first
	count  map[netip.Prefix]int
	memory int
}

func (s *unnamedSet) add(c *Conn, deadline time.Time) *unnamed {
	u := &unnamed{source: sourceOf(c.from.Addr()), c: c, deadline: deadline, at: c.rxPosition()}
	s.all = append(s.all, u)
	s.count[u.source]++
	return u
}

// remove takes u out, which may be nil or out already.
func (s *unnamedSet) remove(u *unnamed) {
	i := slices.Index(s.all, u)
	if i < 0 {
		return
	}
	s.all = slices.Delete(s.all, i, i+1)
	s.memory -= u.memory
	if s.count[u.source]--; s.count[u.source] == 0 {
		delete(s.count, u.source)
	}
}

// victim is the connection to evict among those that may be: of the source that has most, the oldest without
// a connection request, else the oldest. nil if none may be.
func (s *unnamedSet) victim(may func(*unnamed) bool) *unnamed {
	var oldest, halfOpen *unnamed
	for _, u := range s.all {
		if !may(u) {
			continue
		}
		if oldest == nil || s.count[u.source] > s.count[oldest.source] {
			oldest, halfOpen = u, nil
		}
		if halfOpen == nil && u.source == oldest.source && u.c.state != connOpen {
			halfOpen = u
		}
	}
	if halfOpen != nil {
		return halfOpen
	}
	return oldest
}

func anyUnnamed(*unnamed) bool { return true }

// evictOne evicts one of those that may be, and reports whether there was one.
func (it *Iface) evictOne(may func(*unnamed) bool) bool {
	u := it.unnamed.victim(may)
	if u == nil {
		return false
	}
	it.limits.evicted.Inc()
	it.unnamed.remove(u)
	u.c.unnamed = nil
	if u.c.state != connOpen {
		u.c.discard()
		return true
	}
	it.logRefusal(u.c, errEvicted)
	u.c.gotFin = false
	u.c.fail(errEvicted)
	return true
}

// limits are counters of what the limits on accepted connections did.
type limits struct {
	refused   stats.Counter // connections refused in the handshake
	evicted   stats.Counter // unnamed connections that made room for another
	stalled   stats.Counter // unnamed connections that did not move on in time
	malformed stats.Counter // connections that ended by what the peer sent
}

var (
	errEvicted = fmt.Errorf("evicted: no endpoint here names the peer, and there are too many such connections")
	errStalled = fmt.Errorf("the peer has stopped in the middle of a frame, and no endpoint here names it")
)

// needRx makes the receive buffer long enough for a frame of n bytes. An unnamed connection may evict
// others by that.
func (c *Conn) growForFrame(n int) {
	whole := int(c.it.cfg.RxBuf)
	if u, s := c.unnamed, &c.it.unnamed; u != nil && n > len(c.rx.buf) {
		for s.memory > 0 && s.memory+whole > unnamedMemory {
			if !c.it.evictOne(func(o *unnamed) bool { return o != u && o.memory > 0 }) {
				break
			}
		}
		u.memory += whole
		s.memory += whole
	}
	if n > len(c.rx.buf) {
		c.rx.growTo(whole)
	}
}

// expireUnnamed closes the connections that have not moved on in time.
func (it *Iface) expireUnnamed(now time.Time) {
	for _, u := range slices.Clone(it.unnamed.all) {
		c := u.c
		switch at := c.rxPosition(); {
		case c.state == connMagic || c.state == connRequest:
			if now.After(u.deadline) {
				c.refuse(errRequestTimeout)
			}
		case at != u.at || at.read == 0 || c.held:
			u.at, u.deadline = at, now.Add(it.cfg.HelloTimeout)
		case now.After(u.deadline):
			it.limits.stalled.Inc()
			it.logRefusal(c, errStalled)
			c.fail(errStalled)
		}
	}
}

// unnamedTick is how often the limits of unnamed connections are looked at; 0 if there is none.
func (it *Iface) unnamedTick() time.Duration {
	every := time.Duration(0)
	for _, u := range it.unnamed.all {
		if u.c.state != connOpen {
			return deadlineTick
		}
		every = it.cfg.HelloTimeout / 4
	}
	return every
}

// refusalLog is the time between two lines about refusals: untrusted peers must not fill the log.
const refusalLog = time.Second

var logger = log.For(Name)

// refusals is what is known of connections refused in the handshake.
type refusals struct {
	logged time.Time
	silent uint64 // since then
}

// logRefusal writes a line to the log, if it is not too soon for that.
func (it *Iface) logRefusal(c *Conn, err error) {
	r := &it.refusals
	r.silent++
	if !log.On(log.Warn) {
		return
	}
	if now := time.Now(); now.Sub(r.logged) >= refusalLog {
		logger.Warn("connections refused", "device", it.dev.name, "count", r.silent, "from", c.from, "last", err)
		r.logged, r.silent = now, 0
	}
}
