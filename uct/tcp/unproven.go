package tcp

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs/stats"
)

// An accepted connection is unproven until this side has a reason to believe that its peer is
// wanted: an EP of the iface names the peer, or, with TLS, the peer has shown its certificate.
// Until then it may be from anyone, and
//
//   - it is one of at most MAX_HANDSHAKES, whether its HELLO has come or not. One more evicts
//     the oldest of the source that has most;
//   - it must send its HELLO within HELLO_TIMEOUT, then a first frame, and the rest of each frame
//     that it has begun;
//   - it has small buffers, and more memory only as far as unprovenMemory goes.
//
// An evicted peer that is honest connects again if its HELLO had not been answered; otherwise its
// EPs fail.

// smallRx is the receive buffer of an unproven connection, in bytes. Every frame but a large
// active message fits.
const smallRx = 2 << 10

// smallTx is the transmit buffer of an unproven connection beyond the room for all answers, in
// bytes: two answers to a get that are copied into it.
const smallTx = 2 * inlineGet

// unprovenMemory is how many bytes of longer buffers the unproven connections of an iface have
// together; more only if a single connection needs more.
const unprovenMemory = 8 << 20

// busyFrames is after how many frames an unproven connection has buffers of full length while
// there is memory.
const busyFrames = 32

// source is where a connection comes from: an IPv4 address, a network of IPv6 (/64, as a host
// may have all of it), or this host. Processes of one host are one source: the kernel does not say
// which process is at the other end of a tcp connection.
type source netip.Prefix

// sourceBits6 is the part of an IPv6 address that tells sources apart.
const sourceBits6 = 64

func sourceOf(ip netip.Addr) source {
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() {
		return source{}
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = sourceBits6
	}
	p, _ := ip.Prefix(bits)
	return source(p)
}

// unproven is one such connection: an incoming one or, after the HELLO, a conn.
type unproven struct {
	from     source
	in       *incoming  // until the HELLO is answered
	c        *conn      // since then
	deadline time.Time  // by which it must have moved on
	at       rxPosition // where it stood when limit was set
	memory   int        // bytes of buffers of full length
}

// rxMark is how far a connection has read.
type rxPosition struct {
	executed   uint64
	head, tail int
	sink       int
}

func (c *conn) rxPosition() rxPosition {
	return rxPosition{c.executed, c.rx.head, c.rx.tail, c.rx.sink.left}
}

// incomplete reports whether a frame has not come whole, or none has come.
func (m rxPosition) incomplete() bool { return m.executed == 0 || m.head < m.tail || m.sink > 0 }

// unprovenSet is the unproven connections of an iface.
type unprovenSet struct {
	all    []*unproven // oldest first
	count  map[source]int
	memory int
}

func (u *unprovenSet) add(p *unproven) {
	u.all = append(u.all, p)
	u.count[p.from]++
}

// remove takes p out, which may be nil or out already.
func (u *unprovenSet) remove(p *unproven) {
	i := slices.Index(u.all, p)
	if i < 0 {
		return
	}
	u.all = slices.Delete(u.all, i, i+1)
	u.memory -= p.memory
	if u.count[p.from]--; u.count[p.from] == 0 {
		delete(u.count, p.from)
	}
}

// victim is the connection to evict among those that may be: of the source that has most, the
// oldest that has sent nothing useful, else the oldest. nil if none may be.
func (u *unprovenSet) victim(may func(*unproven) bool) *unproven {
	var oldest, useless *unproven
	for _, p := range u.all {
		if !may(p) {
			continue
		}
		if oldest == nil || u.count[p.from] > u.count[oldest.from] {
			oldest, useless = p, nil
		}
		if useless == nil && p.from == oldest.from && !p.sentRequest() {
			useless = p
		}
	}
	if useless != nil {
		return useless
	}
	return oldest
}

// useful reports whether p has sent a request.
func (p *unproven) sentRequest() bool { return p.c != nil && p.c.executed > 0 }

// limits are counters of what the limits on unproven connections did.
type limits struct {
	refused stats.Counter // connections refused in the handshake, also those evicted in it
	evicted stats.Counter // unproven connections that made room for another
	stalled stats.Counter // unproven connections that did not move on in time

	malformed stats.Counter // connections that ended by what the peer sent
}

// AddStats implements uct.Counted.
func (it *Iface) AddStats(n *stats.Node) {
	it.am.AddStats(n)
	n.Add("refused_connections", &it.limits.refused)
	n.Add("evicted_connections", &it.limits.evicted)
	n.Add("stalled_connections", &it.limits.stalled)
	n.Add("malformed_connections", &it.limits.malformed)
}

var (
	errEvicted = errors.New("evicted before anything here named the peer: too many such connections (MAX_HANDSHAKES)")
	errStalled = errors.New("the peer has stopped in the middle of a frame, or sent none, and nothing here names it")
)

// evict closes p to make room.
func (it *Iface) evict(p *unproven) {
	it.limits.evicted.Inc()
	if p.in != nil {
		p.in.refuse(errEvictedInHandshake)
		return
	}
	it.logRefusal(errEvicted)
	p.c.fail(errEvicted)
}

// evictOne evicts one of those that may be, and reports whether there was one.
func (it *Iface) evictOne(may func(*unproven) bool) bool {
	p := it.unproven.victim(may)
	if p != nil {
		it.evict(p)
	}
	return p != nil
}

func anyUnproven(*unproven) bool          { return true }
func isOpen(p *unproven) bool             { return p.c != nil }
func sentNothing(p *unproven) bool        { return !p.sentRequest() }
func (p *unproven) hasLargeBuffers() bool { return p.memory > 0 }

// prove ends the limits on c: something here names its peer.
func (c *conn) markProven() {
	if c.unproven == nil {
		return
	}
	c.it.unproven.remove(c.unproven)
	c.unproven = nil
	if c.state == connOpen {
		c.growBuffers()
	}
	for _, r := range c.rails {
		if r != nil {
			r.markProven()
		}
	}
}

// growBuffers gives c buffers of full length; the transmit buffer only if there is one.
func (c *conn) growBuffers() {
	r := &c.rx
	if n := int(c.it.cfg.RxBuf); len(r.buf) < n {
		b := make([]byte, n)
		copy(b, r.buf[:r.tail])
		r.buf = b
	}
	if c.tx.buf != nil {
		c.growTx()
	}
}

// growTx makes the transmit buffer: a small one while c is unproven and has no memory.
func (c *conn) growTx() {
	n := int(c.it.cfg.TxBuf)
	if c.unproven != nil && c.unproven.memory == 0 {
		n = min(n, smallTx)
	}
	c.tx.growTo(n)
}

// needRx makes the buffers long enough for a frame of n bytes, if c has not lost the connection by
// that, or for much traffic.
func (c *conn) growForFrame(n int) {
	whole := int(c.it.cfg.RxBuf) + int(c.it.cfg.TxBuf)
	p := c.unproven
	busy := p != nil && p.memory == 0 && c.executed >= busyFrames && c.it.unproven.memory+whole <= unprovenMemory
	if (n > len(c.rx.buf) || busy) && c.charge(whole) {
		c.growBuffers()
	}
}

// charge books n bytes for c if it is unproven, and evicts others until they are there. It reports
// whether c still has its connection.
func (c *conn) charge(n int) bool {
	p, u := c.unproven, &c.it.unproven
	if p == nil {
		return true
	}
	for u.memory > 0 && u.memory+n > unprovenMemory {
		if !c.it.evictOne(func(o *unproven) bool { return o != p && o.hasLargeBuffers() }) {
			break
		}
	}
	p.memory += n
	u.memory += n
	return c.state == connOpen
}

// expireUnproven closes the connections that have not moved on in time.
func (it *Iface) expireUnproven(now time.Time) {
	for _, p := range slices.Clone(it.unproven.all) {
		switch {
		case p.in != nil && now.After(p.deadline):
			p.in.refuse(errNoHello)
		case p.c != nil:
			p.c.expire(now)
		}
	}
}

// expire fails c if a frame is incomplete and nothing more of it has come in time.
func (c *conn) expire(now time.Time) {
	p := c.unproven
	switch at := c.rxPosition(); {
	case at != p.at || !at.incomplete():
		p.at, p.deadline = at, now.Add(c.it.cfg.HelloTimeout)
	case now.After(p.deadline):
		c.it.limits.stalled.Inc()
		c.it.logRefusal(errStalled)
		c.fail(errStalled)
	}
}

// unprovenTick is how often limits of unproven connections are looked at: often while there are
// some whose HELLO has not come, 0 if there is none.
func (it *Iface) unprovenTick() time.Duration {
	every := time.Duration(0)
	for _, p := range it.unproven.all {
		if p.in != nil {
			return deadlineTick
		}
		every = it.cfg.HelloTimeout / 4
	}
	return every
}

// allowedHandshakes is MAX_HANDSHAKES, or half of the descriptors that the process may have.
func (c *Config) allowedHandshakes() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur/2 < uint64(c.MaxHandshakes) {
		return max(int(limit.Cur/2), 1)
	}
	return c.MaxHandshakes
}
