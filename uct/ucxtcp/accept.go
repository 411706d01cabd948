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
	"github.com/gucx/gucx/uct/internal/sockio"
)

// An accepted connection is unnamed while no EP of this side names its peer. It may be from any
// process that can reach the port, because UCX's protocol has no authentication. So unnamed
// connections have limits:
//
//   - At most MAX_UNNAMED exist, and MAX_PER_SOURCE of one source. One more evicts another.
//   - Their buffers are small. All together have at most unnamedMemory bytes of larger buffers.
//   - The peer must send its connection request within HELLO_TIMEOUT, and the rest of each frame
//     that it has begun.

const (
	// smallRx is the size of the receive buffer of an unnamed connection in bytes. Most frames fit.
	smallRx = 2 << 10
	// unnamedMemory is the maximum total size of the larger buffers of the unnamed connections of
	// an iface, in bytes. A single connection may exceed it.
	unnamedMemory = 16 << 20
	// acceptBatch is the maximum number of connections that are accepted for one event.
	acceptBatch = 16
	// maxAcceptPause is the maximum time for which the accept queue is ignored.
	maxAcceptPause = time.Second
	// sourceBits6 is the prefix length of IPv6 sources: a host may have all addresses of a /64.
	sourceBits6 = 64
)

// listener is the listening socket.
type listener struct {
	it       *Iface
	slot     epoll.Watch
	fd       int
	paused   bool          // the accept queue is ignored until resumeAt
	pause    time.Duration // the last pause; 0 after a successful accept
	resumeAt time.Time
}

// Ready implements epoll.Watcher. It accepts connections.
func (l *listener) Ready(uint32) int {
	it := l.it
	for range acceptBatch {
		fd, from, err := sockio.Accept(l.fd)
		switch {
		case err == nil:
			l.pause = 0
			it.receiveConn(fd, sockio.AddrPort(from))
		case sockio.OutOfResources(err):
			if !it.evictOne(func(u *unnamed) bool { return u.c.frames == 0 }) { // otherwise the eviction has released a descriptor
				l.pauseAccept()
			}
			return 0
		case err == unix.EAGAIN:
			return 0
		default: // an error of that connection, or EINTR
		}
	}
	return 0
}

// pauseAccept ignores the accept queue for a time that doubles with each call. Otherwise epoll
// would report the queue again and again while descriptors or memory are exhausted.
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

// receiveConn starts the handshake of an accepted connection. It evicts others if there are too
// many.
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
	c.receive() // the request has often arrived already
}

// makeRoom evicts unnamed connections until one more of the source is permitted.
func (it *Iface) makeRoom(source netip.Prefix) {
	for it.unnamed.count[source] >= it.cfg.MaxPerSource {
		it.evictOne(func(u *unnamed) bool { return u.source == source })
	}
	for len(it.unnamed.all) >= it.maxUnnamed {
		it.evictOne(anyUnnamed)
	}
}

// unname makes an open connection unnamed after its EP was closed.
func (c *Conn) makeUnnamed() {
	it := c.it
	it.makeRoom(sourceOf(c.from.Addr()))
	c.unnamed = it.unnamed.add(c, time.Now().Add(it.cfg.HelloTimeout))
	_ = it.tickEvery(it.unnamedTick())
}

// sourceOf returns the source of a connection: an IPv4 address or an IPv6 network.
func sourceOf(ip netip.Addr) netip.Prefix {
	bits := ip.BitLen()
	if ip.Is6() {
		bits = sourceBits6
	}
	p, _ := ip.Prefix(bits)
	return p
}

// unnamed is an unnamed connection.
type unnamed struct {
	source   netip.Prefix
	c        *Conn
	deadline time.Time  // time by which the request or more of a frame must have arrived
	at       rxPosition // position of the receiver when deadline was set
	memory   int        // bytes of larger buffers
}

// rxPosition is the position of a connection in the received stream.
type rxPosition struct {
	frames uint64
	read   int
}

func (c *Conn) rxPosition() rxPosition { return rxPosition{c.frames, c.rx.tail - c.rx.head} }

// unnamedSet contains the unnamed connections of an iface.
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

// remove removes u, which may be nil or already removed.
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

// victim returns the connection to evict among those for which may is true, or nil. It selects the
// source with the most connections; of these the oldest one without a connection request, else the
// oldest one.
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

// evictOne evicts the victim among those for which may is true. It reports whether there was one.
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

// limits are the counters of connections that were closed because of a limit.
type limits struct {
	refused   stats.Counter // connections refused in the handshake
	evicted   stats.Counter // unnamed connections that were evicted for another
	stalled   stats.Counter // unnamed connections that sent only a part of a frame in time
	malformed stats.Counter // connections that failed because the peer sent an invalid frame
}

var (
	errEvicted = fmt.Errorf("evicted by later connections: no endpoint of this side names the peer (MAX_UNNAMED, MAX_PER_SOURCE)")
	errStalled = fmt.Errorf("the peer sent an incomplete frame, and no endpoint of this side names it (HELLO_TIMEOUT)")
)

// growForFrame enlarges the receive buffer for a frame of n bytes. For an unnamed connection it
// evicts others to stay below unnamedMemory.
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

// expireUnnamed closes the connections whose request or frame is incomplete at its deadline.
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

// unnamedTick returns the interval at which the deadlines of unnamed connections are checked; 0 if
// there are none.
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

// refusalLog is the minimum time between two log lines about refusals, because untrusted peers must
// not fill the log.
const refusalLog = time.Second

var logger = log.For(Name)

// refusals is the log state of connections that were refused in the handshake.
type refusals struct {
	logged time.Time
	silent uint64 // number of refusals since the last line
}

// logRefusal writes a log line, but not more often than once in refusalLog.
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
