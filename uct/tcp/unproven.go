package tcp

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs/stats"
)

// An accepted connection is unproven until an EP of the iface names its peer or, with TLS, until
// the peer has shown its certificate. An unproven connection may be from any process, so it has
// limits:
//
//   - The number of unproven connections is at most MAX_HANDSHAKES, before and after their HELLO.
//     One more evicts the oldest one of the source with the most connections.
//   - The peer must send its HELLO within HELLO_TIMEOUT, then a first frame, and the rest of each
//     frame that it has begun.
//   - Its buffers are small. All unproven connections together have at most unprovenMemory bytes of
//     larger buffers.
//
// If an honest peer is evicted before its HELLO is answered, it connects again. If it is evicted
// later, its EPs fail.

// smallRx is the size of the receive buffer of an unproven connection in bytes. All frames but
// large active messages fit.
const smallRx = 2 << 10

// smallTx is the size of the transmit buffer of an unproven connection in bytes, without replyRoom:
// two inline replies to gets.
const smallTx = 2 * inlineGet

// unprovenMemory is the maximum total size of the larger buffers of the unproven connections of an
// iface, in bytes. A single connection may exceed it.
const unprovenMemory = 8 << 20

// busyFrames is the number of frames after which an unproven connection gets buffers of full size,
// if unprovenMemory permits.
const busyFrames = 32

// source is the origin of a connection: an IPv4 address, an IPv6 network (/64, because a host may
// have all of its addresses), or this host. All processes of this host are one source, because the
// kernel does not report the process at the other end of a TCP connection.
type source netip.Prefix

// sourceBits6 is the prefix length of IPv6 sources.
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

// unproven is an unproven connection: an incoming one or, after the HELLO, a conn.
type unproven struct {
	from     source
	in       *incoming  // nil after the HELLO was answered
	c        *conn      // nil before that
	deadline time.Time  // time by which more of the HELLO or frame must have arrived
	at       rxPosition // position of the receiver when deadline was set
	memory   int        // bytes of buffers of full size
}

// rxPosition is the position of a connection in the received stream.
type rxPosition struct {
	executed   uint64
	head, tail int
	sink       int
}

func (c *conn) rxPosition() rxPosition {
	return rxPosition{c.executed, c.rx.head, c.rx.tail, c.rx.sink.left}
}

// incomplete reports whether a frame is incomplete, or no frame has arrived.
func (m rxPosition) incomplete() bool { return m.executed == 0 || m.head < m.tail || m.sink > 0 }

// unprovenSet contains the unproven connections of an iface.
type unprovenSet struct {
	all    []*unproven // oldest first
	count  map[source]int
	memory int
}

func (u *unprovenSet) add(p *unproven) {
	u.all = append(u.all, p)
	u.count[p.from]++
}

// remove removes p, which may be nil or already removed.
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

// victim returns the connection to evict among those for which may is true, or nil. It selects the
// source with the most connections; of these the oldest one that has sent no request, else the
// oldest one.
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

// sentRequest reports whether p has sent a request.
func (p *unproven) sentRequest() bool { return p.c != nil && p.c.executed > 0 }

// limits are the counters of connections that were closed because of a limit.
type limits struct {
	refused stats.Counter // connections refused in the handshake, also those evicted in it
	evicted stats.Counter // unproven connections that were evicted for another
	stalled stats.Counter // unproven connections that sent no frame, or part of one, in time

	malformed stats.Counter // connections that failed because the peer sent an invalid frame
}

// AddStats implements uct.Counted.
func (it *iface) AddStats(n *stats.Node) {
	it.am.AddStats(n)
	n.Add("refused_connections", &it.limits.refused)
	n.Add("evicted_connections", &it.limits.evicted)
	n.Add("stalled_connections", &it.limits.stalled)
	n.Add("malformed_connections", &it.limits.malformed)
	it.traffic.AddStats(n, "requests")
}

// UpdateStats implements uct.StatsUpdater. Requests are active messages, puts, gets, atomics, flushes, and the parts of
// striped puts, each of which counts as one request. Requests that the iface receives from itself do not count.
func (it *iface) UpdateStats() {
	var sent, received uint64
	for _, c := range it.known.All() {
		sent += c.sent
		received += c.executed
	}
	it.traffic.Update(sent, received)
}

var (
	errEvicted = errors.New("evicted by later connections: no endpoint of this side names the peer (MAX_HANDSHAKES)")
	errStalled = errors.New("the peer sent no frame or an incomplete one, and no endpoint of this side names it (HELLO_TIMEOUT)")
)

// evict closes p.
func (it *iface) evict(p *unproven) {
	it.limits.evicted.Inc()
	if p.in != nil {
		p.in.refuse(errEvictedInHandshake)
		return
	}
	it.logRefusal(errEvicted)
	p.c.fail(errEvicted)
}

// evictOne evicts the victim among those for which may is true. It reports whether there was one.
func (it *iface) evictOne(may func(*unproven) bool) bool {
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

// markProven removes the limits of c and its rails, because an EP names the peer.
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

// growBuffers enlarges the buffers of c to full size. It does not make a transmit buffer if there
// is none.
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

// growTx makes the transmit buffer: a small one if c is unproven and has no larger buffers.
func (c *conn) growTx() {
	n := int(c.it.cfg.TxBuf)
	if c.unproven != nil && c.unproven.memory == 0 {
		n = min(n, smallTx)
	}
	c.tx.growTo(n)
}

// growForFrame enlarges the buffers if a frame of n bytes does not fit in the receive buffer, or if
// c has received many frames. The frame may not fit afterwards only if c was evicted.
func (c *conn) growForFrame(n int) {
	whole := int(c.it.cfg.RxBuf) + int(c.it.cfg.TxBuf)
	p := c.unproven
	busy := p != nil && p.memory == 0 && c.executed >= busyFrames && c.it.unproven.memory+whole <= unprovenMemory
	if (n > len(c.rx.buf) || busy) && c.charge(whole) {
		c.growBuffers()
	}
}

// charge accounts n bytes of buffers for c if it is unproven, and evicts other connections to stay
// below unprovenMemory. It reports whether c is still open.
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
	if c.state != connOpen { // the evicted connection was the first one of this rail
		return false
	}
	p.memory += n
	u.memory += n
	return true
}

// expireUnproven closes the connections whose HELLO or frame is incomplete at its deadline.
func (it *iface) expireUnproven(now time.Time) {
	for _, p := range slices.Clone(it.unproven.all) {
		switch {
		case p.in != nil && now.After(p.deadline):
			p.in.refuse(p.in.lateCause())
		case p.c != nil:
			p.c.expire(now)
		}
	}
}

// expire fails c if a frame is incomplete and nothing more of it has arrived until the deadline.
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

// unprovenTick returns the interval at which the deadlines of unproven connections are checked: a
// short one if a HELLO is missing; 0 if there are no unproven connections.
func (it *iface) unprovenTick() time.Duration {
	every := time.Duration(0)
	for _, p := range it.unproven.all {
		if p.in != nil {
			return deadlineTick
		}
		every = it.cfg.HelloTimeout / 4
	}
	return every
}

// allowedHandshakes returns MAX_HANDSHAKES, but at most half of the descriptors that the process
// may open.
func (c *Config) allowedHandshakes() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur/2 < uint64(c.MaxHandshakes) {
		return max(int(limit.Cur/2), 1)
	}
	return c.MaxHandshakes
}
