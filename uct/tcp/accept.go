package tcp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
	"github.com/gucx/gucx/uct/internal/epoll"
	"github.com/gucx/gucx/uct/tcp/internal/tunnel"
)

// acceptBatch is the number of connections accepted for one event.
const acceptBatch = 16

// listener is a listening socket.
type listener struct {
	it   *Iface
	slot epoll.Watch
	fd   int
}

// Ready implements epoll.Watcher: it accepts.
func (l *listener) Ready(uint32) int {
	for range acceptBatch {
		fd, from, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			l.it.acceptPause = 0
			l.it.receiveConn(fd, sourceOf(addrPort(from).Addr()))
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			if !l.it.evictOne(sentNothing) { // else there is a descriptor when Progress returns
				l.it.pauseAccept()
			}
			return 0
		case unix.EAGAIN:
			return 0
		default: // of that connection, or EINTR
		}
	}
	return 0
}

// maxAcceptPause is the longest time for which the accept queue is ignored.
const maxAcceptPause = time.Second

// pauseAccept ignores the accept queue for a while, which doubles each time: the queue would be
// reported again and again while descriptors or memory are exhausted.
func (it *Iface) pauseAccept() {
	it.acceptPaused = true
	it.acceptPause = min(max(2*it.acceptPause, deadlineTick), maxAcceptPause)
	it.acceptAt = time.Now().Add(it.acceptPause)
	for _, l := range it.listeners {
		it.poll.Change(l.slot, 0)
	}
	_ = it.tickEvery(it.acceptPause)
}

func (it *Iface) resumeAccept(now time.Time) {
	if !it.acceptPaused || now.Before(it.acceptAt) {
		return
	}
	it.acceptPaused = false
	for _, l := range it.listeners {
		it.poll.Change(l.slot, unix.EPOLLIN)
	}
}

// incoming is an accepted connection whose handshake has not ended.
type incoming struct {
	it *Iface
	link
	unproven *unproven
	hello    message
	secret   pairKey // once the HELLO has come
}

// receiveConn begins the handshake of an accepted connection. Another one makes room for it.
func (it *Iface) receiveConn(fd int, from source) {
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
	s.Ready(unix.EPOLLIN) // what it says is often there already
}

// acceptLink makes a link of an accepted socket, which it consumes.
func (it *Iface) acceptLink(fd int) (l link, err error) {
	if it.tunnels == nil {
		return link{fd: fd}, nil
	}
	l.tun, l.fd, err = it.tunnels.Accept(fd, it.cfg.HelloTimeout)
	return l, err
}

// leave closes the connection.
func (s *incoming) drop() {
	s.it.unproven.remove(s.unproven)
	s.link.close(&s.it.poll)
}

// Ready implements epoll.Watcher.
func (s *incoming) Ready(uint32) int {
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
		s.it.respond(s, &h)
	}
	return 0
}

// proven reports whether the sender of the HELLO has the key that it names.
func (s *incoming) proven(h *hello) bool {
	var err error
	s.secret, err = pairWith(&s.it.identity, &h.from, s.it.token)
	return err == nil && s.secret.proves(&s.hello.buf, s.binding())
}

// unprovenCause is why a HELLO without the right proof is refused.
func (it *Iface) unprovenCause() error {
	if it.token != "" {
		return errNoToken
	}
	return errUnproven
}

// declineVersion answers a HELLO of another version, of which only the version is understood.
func (s *incoming) declineVersion(h *hello) {
	answer := hello{version: helloVersion, msg: msgAnswer, code: codeVersion, from: s.it.addr.key}
	_ = sendHello(s.it.io, s.fd, &answer, nil, nil)
	s.refuse(fmt.Errorf("%w: %d, this side %d", errVersion, h.version, helloVersion))
}

// wordStart is how many bytes tell what protocol a peer speaks.
const magicLen = 4

// Why connections are refused in the handshake.
var (
	errGarbage            = errors.New("it does not speak this protocol")
	errWrongIface         = errors.New("it looks for another iface")
	errNoHello            = errors.New("it made no handshake in time")
	errEvictedInHandshake = errors.New("too many others have connected since (MAX_HANDSHAKES)")
	errWantsTLS           = errors.New("it speaks TLS, which is off here")
	errUnproven           = errors.New("it cannot prove that it is the iface that it says it is")
	errNoToken            = errors.New("it cannot prove that it is the iface that it says it is, or has not the token of this side (AUTH_TOKEN)")
	errReplay             = errors.New("its HELLO was sent before")
	errVersion            = errors.New("it speaks another version of this protocol")
	errRail               = errors.New("it wants more connections than MAX_CONN_PER_PEER")
	errOtherCert          = errors.New("its certificate is for another identity than that of its open connection")
	errMaxConns           = errors.New("there are MAX_CONNS connections")
	errLimits             = errors.New("its SEG_SIZE or limits differ")
)

// refuse closes the connection.
func (s *incoming) refuse(why error) {
	s.drop()
	s.it.countRefusal(why)
}

// refusals is what is known of connections refused in the handshake.
type refusals struct {
	last   error
	logged time.Time
	silent uint64 // since then
}

// refusalLog is the time between two lines about refusals: untrusted peers must
// not fill the log.
const refusalLog = time.Second

var logger = log.For(Name)

func (it *Iface) countRefusal(why error) {
	it.limits.refused.Inc()
	it.logRefusal(why)
}

// logRefusal writes a line to the log, if it is not too soon for that, and there is something to write
// about: who hangs up before it has said who it is may have been connected to meanwhile, or looks for open
// ports.
func (it *Iface) logRefusal(why error) {
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

// respond answers a HELLO, and attaches its connection or closes it.
func (it *Iface) respond(s *incoming, h *hello) {
	c, answer, why := it.evaluate(h, s.peerName())
	answer.version, answer.msg = helloVersion, msgAnswer
	answer.from, answer.to, answer.conn = it.addr.key, h.from.ID(), h.conn
	answer.seg, answer.replies, answer.rail = it.addr.seg, maxReplies, h.rail
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
		if h.from != it.addr.key { // the other end of a connection to ourselves is in the table
			it.addConn(c)
		}
	}
	if c.attempt != nil {
		c.attempt.drop()
		c.attempt = nil
	}
	c.secret = s.secret
	it.inheritUnproven(c, s)
	c.open(s.link, h.conn)
}

// inherit makes c, which is accepted, unproven if it is.
func (it *Iface) inheritUnproven(c *conn, s *incoming) {
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

// evaluate decides about a HELLO, whose sender has proven to be the iface that it names. Of two
// attempts that cross, the one of the side with the lower id goes on; both sides come to that by
// themselves. name is the identity in the certificate of the sender. c is the connection to attach the
// socket to; nil for a new one. why is nil unless the answer is a refusal.
func (it *Iface) evaluate(h *hello, name string) (c *conn, answer hello, why error) {
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
