package tcp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct/internal/epoll"
	"github.com/gucx/gucx/uct/internal/sockio"
	"github.com/gucx/gucx/uct/tcp/internal/tunnel"
)

// acceptBatch is the maximum number of connections that are accepted for one event.
const acceptBatch = 16

// listener is a listening socket.
type listener struct {
	it   *iface
	slot epoll.Watch
	fd   int
}

// Ready implements epoll.Watcher. It accepts connections.
func (l *listener) Ready(uint32) int {
	for range acceptBatch {
		fd, from, err := sockio.Accept(l.fd)
		switch {
		case err == nil:
			l.it.acceptPause = 0
			l.it.receiveConn(fd, sourceOf(sockio.AddrPort(from).Addr()))
		case sockio.OutOfResources(err):
			if !l.it.evictOne(sentNothing) { // otherwise the eviction has released a descriptor
				l.it.pauseAccept()
			}
			return 0
		case err == unix.EAGAIN:
			return 0
		default: // an error of that connection, or EINTR
		}
	}
	return 0
}

// maxAcceptPause is the maximum time for which the accept queue is ignored.
const maxAcceptPause = time.Second

// pauseAccept ignores the accept queue for a time that doubles with each call. Otherwise epoll
// would report the queue again and again while descriptors or memory are exhausted.
func (it *iface) pauseAccept() {
	it.acceptPaused = true
	it.acceptPause = min(max(2*it.acceptPause, deadlineTick), maxAcceptPause)
	it.acceptAt = time.Now().Add(it.acceptPause)
	for _, l := range it.listeners {
		it.poll.Change(l.slot, 0)
	}
	_ = it.tickEvery(it.acceptPause)
}

func (it *iface) resumeAccept(now time.Time) {
	if !it.acceptPaused || now.Before(it.acceptAt) {
		return
	}
	it.acceptPaused = false
	for _, l := range it.listeners {
		it.poll.Change(l.slot, unix.EPOLLIN)
	}
}

// incoming is an accepted connection during the handshake.
type incoming struct {
	it *iface
	link
	unproven *unproven
	hello    message
	deferred bool    // it is the deferredHello of a conn
	secret   pairKey // nil before the HELLO
}

// receiveConn starts the handshake of an accepted connection. If there are too many unproven
// connections, it evicts others.
func (it *iface) receiveConn(fd int, from source) {
	for len(it.unproven.all) >= it.maxUnproven {
		it.evictOne(anyUnproven)
	}
	s := &incoming{it: it}
	s.unproven = &unproven{from: from, in: s, deadline: time.Now().Add(it.cfg.HelloTimeout)}
	var err error
	if s.link, err = it.acceptLink(fd); err == nil {
		err = s.watch(&it.poll, unix.EPOLLIN, s)
	}
	if err == nil {
		it.unproven.add(s.unproven)
		err = it.tickEvery(deadlineTick)
	}
	if err != nil {
		s.refuse(err)
		return
	}
	s.Ready(unix.EPOLLIN) // the HELLO has often arrived already
}

// acceptLink makes a link of an accepted socket, of which it takes ownership.
func (it *iface) acceptLink(fd int) (l link, err error) {
	if it.tunnels == nil {
		return link{fd: fd}, nil
	}
	l.tun, l.fd, err = it.tunnels.Accept(fd, it.cfg.HelloTimeout)
	return l, err
}

// drop closes the connection.
func (s *incoming) drop() {
	s.it.unproven.remove(s.unproven)
	s.link.close(&s.it.poll)
}

// Ready implements epoll.Watcher.
func (s *incoming) Ready(uint32) int {
	if s.deferred {
		s.checkDeferred()
		return 0
	}
	done, err := s.hello.read(s.it.io, s.fd)
	switch h, ok := parseHello(&s.hello.buf, msgHello); {
	case err != nil:
		s.refuse(s.tun.Cause(err))
	case s.hello.got >= magicLen && !hasMagic(&s.hello.buf):
		if s.tun == nil && tunnel.IsClientHello(s.hello.buf[:]) {
			_, _ = s.it.io.Send(s.fd, tunnel.NoTLSAlert[:])
			s.refuse(errWantsTLS)
		} else {
			s.refuse(errGarbage)
		}
	case s.hello.got >= helloStart && h.version != helloVersion:
		s.declineVersion(&h)
	case !done:
	case !ok:
		s.refuse(errGarbage)
	case h.to != s.it.addr.key.ID():
		s.refuse(errWrongIface)
	case !s.proven(&h):
		s.refuse(s.it.unprovenCause())
	case s.it.token != "" && s.tun == nil && !s.it.hellos.accept(h.from, h.rail, h.number):
		s.refuse(errReplay)
	default:
		s.it.receiveHello(s, &h)
	}
	return 0
}

// proven reports whether the sender of the HELLO has the private key of its public key.
func (s *incoming) proven(h *hello) bool {
	var err error
	s.secret, err = pairWith(&s.it.identity, &h.from, s.it.token)
	return err == nil && s.secret.proves(&s.hello.buf, s.binding())
}

// unprovenCause returns the error for a HELLO without the right proof.
func (it *iface) unprovenCause() error {
	if it.token != "" {
		return errNoToken
	}
	return errUnproven
}

// declineVersion replies to a HELLO of another version, of which only the first helloStart bytes can be decoded.
func (s *incoming) declineVersion(h *hello) {
	answer := hello{version: helloVersion, msg: msgAnswer, code: codeVersion, from: s.it.addr.key}
	_ = sendHello(s.it.io, s.fd, &answer, nil, nil)
	s.refuse(fmt.Errorf("%w: %d, this side %d", errVersion, h.version, helloVersion))
}

// magicLen is the length of the field that identifies the protocol, in bytes.
const magicLen = 4

// Reasons to refuse a connection in the handshake. The log shows them as the attribute last.
var (
	errGarbage            = errors.New("the peer does not use this protocol")
	errWrongIface         = errors.New("the HELLO is for another iface")
	errNoHello            = errors.New("no HELLO within HELLO_TIMEOUT")
	errUndecided          = errors.New("the peer has not replied to UNUSED over its open connection within HELLO_TIMEOUT")
	errLaterHello         = errors.New("the peer has sent another HELLO")
	errEvictedInHandshake = errors.New("evicted by later connections (MAX_HANDSHAKES)")
	errWantsTLS           = errors.New("the peer uses TLS, and this side does not")
	errUnproven           = errors.New("the proof of the HELLO is wrong")
	errNoToken            = errors.New("the proof of the HELLO is wrong, or the peer has another token (AUTH_TOKEN)")
	errReplay             = errors.New("the HELLO is a replay")
	errVersion            = errors.New("the peer uses another version of the protocol")
	errRail               = errors.New("the peer wants more connections than MAX_CONN_PER_PEER")
	errOtherCert          = errors.New("the certificate of the peer is for another identity than that of its open connection")
	errMaxConns           = errors.New("all MAX_CONNS connections are in use")
	errLimits             = errors.New("SEG_SIZE or other limits of the peer differ")
)

// lateCause returns the error for a handshake that has exceeded HELLO_TIMEOUT.
func (s *incoming) lateCause() error {
	if s.deferred {
		return errUndecided
	}
	return errNoHello
}

// refuse drops the connection and counts the refusal.
func (s *incoming) refuse(why error) {
	s.drop()
	s.it.countRefusal(why)
}

// refusals is the log state of connections that were refused in the handshake.
type refusals struct {
	last   error
	logged time.Time
	silent uint64 // number of refusals since the last line
}

// refusalLog is the minimum time between two log lines about refusals, because untrusted peers must
// not fill the log.
const refusalLog = time.Second

var logger = log.For(Name)

func (it *iface) countRefusal(why error) {
	it.limits.refused.Inc()
	it.logRefusal(why)
}

// logRefusal writes a log line, but not more often than once in refusalLog. It ignores peers that
// disconnect before they have sent a HELLO: they have connected over another connection in the
// meantime, or scan ports.
func (it *iface) logRefusal(why error) {
	if errors.Is(why, errDisconnected) {
		return
	}
	r := &it.refused
	r.last = why
	r.silent++
	if !log.On(log.Warn) {
		return
	}
	if now := time.Now(); now.Sub(r.logged) >= refusalLog {
		logger.Warn("connections refused", "device", it.dev.name, "count", r.silent, "last", why)
		r.logged, r.silent = now, 0
	}
}

// respond answers a HELLO, and opens the connection or closes its socket.
func (it *iface) respond(s *incoming, h *hello) {
	c, answer, why := it.evaluate(h, s.peerName())
	answer.version, answer.msg = helloVersion, msgAnswer
	answer.from, answer.to, answer.conn = it.addr.key, h.from.ID(), h.conn
	answer.seg, answer.replies, answer.rail = it.addr.seg, maxReplies, h.rail
	answer.features = it.features()
	err := sendHello(it.io, s.fd, &answer, s.secret, s.binding())
	if answer.code != codeOK || err != nil {
		s.drop()
		if why != nil {
			it.countRefusal(why)
		}
		return
	}
	if c == nil && h.rail > 0 {
		c = it.table[h.from].newRail(h.rail)
	}
	if c == nil {
		c = &conn{it: it, key: h.from, secret: s.secret, link: link{fd: -1}}
		if h.from != it.addr.key { // for a connection to the own iface, the conn that dials is in the table
			it.addConn(c)
		}
	}
	if c.attempt != nil {
		c.attempt.drop()
		c.attempt = nil
	}
	c.secret, c.canClose = s.secret, it.canClose(&h.from, h.features)
	it.inheritUnproven(c, s)
	c.open(s.link, h.conn)
}

// inheritUnproven makes the accepted connection c unproven if no EP of this side names its peer.
func (it *iface) inheritUnproven(c *conn, s *incoming) {
	p := s.unproven
	p.in = nil
	main := c
	if c.main != nil {
		main = c.main
	}
	if s.tun != nil || main.eps.Len() > 0 || c.key == it.addr.key || main != c && main.unproven == nil {
		it.unproven.remove(p)
		return
	}
	p.c, c.unproven = c, p
	p.deadline = time.Now().Add(it.cfg.HelloTimeout)
}

var errReplaced = errors.New("the peer has lost this connection and made another")

// evaluate decides on a HELLO with a valid proof. If both sides dial at the same time, the attempt
// of the side with the lower id continues; both sides reach the same decision. name is the identity
// in the certificate of the sender. c is the connection that gets the socket; nil for a new one.
// why is the reason of a refusal, else nil.
func (it *iface) evaluate(h *hello, name string) (c *conn, answer hello, why error) {
	if h.seg != it.addr.seg || h.replies != maxReplies {
		return nil, hello{code: codeRefused}, errLimits
	}
	if h.from != it.addr.key {
		c = it.table[h.from]
	}
	if c != nil && c.state == connOpen && c.certName != name {
		return nil, hello{code: codeRefused}, errOtherCert
	}
	if h.rail > 0 {
		if c == nil || c.state != connOpen || h.rail >= uint32(it.cfg.ConnsPerPeer) {
			return nil, hello{code: codeRefused}, errRail
		}
		c = c.railAt(h.rail)
	}
	if c != nil && c.state == connOpen {
		if h.other != c.id {
			return nil, hello{code: codeOpen, other: c.id}, nil
		}
		c.fail(fmt.Errorf("%w: %w", ucs.ErrConnReset, errReplaced))
		c = nil
	}
	if c != nil && c.state == connDialing && it.addr.key.ID() < h.from.ID() {
		return nil, hello{code: codeYield}, nil
	}
	if it.openCount >= it.cfg.MaxConns && !it.evictOne(isOpen) {
		return nil, hello{code: codeRefused}, errMaxConns
	}
	if h.rail > 0 && it.table[h.from] == nil { // the first connection has failed with the old rail, or was evicted
		return nil, hello{code: codeRefused}, errRail
	}
	return c, hello{code: codeOK}, nil
}
