package tcp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/log"
)

// acceptBatch is the number of connections accepted for one event.
const acceptBatch = 16

// listener is a listening socket.
type listener struct {
	it   *Iface
	slot int32
	fd   int
}

// ready implements watcher: it accepts.
func (l *listener) ready(uint32) int {
	for range acceptBatch {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			l.it.meet(fd)
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			l.it.stopListening()
			return 0
		case unix.EAGAIN:
			return 0
		default: // of that connection, or EINTR
		}
	}
	return 0
}

// stopListening ignores the accept queue until the next tick: it would be
// reported again and again while descriptors or memory are exhausted.
func (it *Iface) stopListening() {
	it.deaf = true
	for _, l := range it.listeners {
		it.poll.change(l.slot, 0)
	}
	_ = it.poll.tick(true)
}

func (it *Iface) listenAgain() {
	if !it.deaf {
		return
	}
	it.deaf = false
	for _, l := range it.listeners {
		it.poll.change(l.slot, unix.EPOLLIN)
	}
}

// stranger is an accepted connection that has not introduced itself.
type stranger struct {
	it *Iface
	link
	limit time.Time
	hello message
}

// meet takes an accepted connection; the oldest stranger makes room for it.
func (it *Iface) meet(fd int) {
	if len(it.strangers) >= it.cfg.Strangers {
		it.strangers[0].refuse(errCrowd)
	}
	s := &stranger{it: it, limit: time.Now().Add(it.cfg.HelloTimeout)}
	var err error
	if s.link, err = it.acceptLink(fd); err == nil {
		err = s.watch(&it.poll, unix.EPOLLIN, s)
	}
	if err == nil {
		it.strangers = append(it.strangers, s)
		err = it.poll.tick(true)
	}
	if err != nil {
		s.refuse(err)
		return
	}
	s.ready(unix.EPOLLIN) // what it says is often there already
}

// acceptLink makes a link of an accepted socket, which it consumes.
func (it *Iface) acceptLink(fd int) (l link, err error) {
	if it.secret == nil {
		return link{fd: fd}, nil
	}
	l.tun, l.fd, err = it.acceptTunnel(fd)
	return l, err
}

// forgetStranger takes s from the list and reports whether it was there.
func (it *Iface) forgetStranger(s *stranger) bool {
	for i, o := range it.strangers {
		if o == s {
			it.strangers = append(it.strangers[:i], it.strangers[i+1:]...)
			return true
		}
	}
	return false
}

// leave closes the connection.
func (s *stranger) leave() {
	s.it.forgetStranger(s)
	s.link.close(&s.it.poll)
}

// expireStrangers closes those whose time is over; the oldest are first.
func (it *Iface) expireStrangers(now time.Time) {
	for len(it.strangers) > 0 && now.After(it.strangers[0].limit) {
		it.strangers[0].refuse(errSilent)
	}
}

// ready implements watcher.
func (s *stranger) ready(uint32) int {
	done, err := s.hello.read(s.it.io, s.fd)
	switch h, ok := parseHello(&s.hello.buf, msgHello); {
	case err != nil:
		s.refuse(s.tun.because(err))
	case s.hello.got >= wordStart && !looksRight(&s.hello.buf):
		if s.tun == nil && startsTLS(&s.hello.buf) {
			_, _ = s.it.io.send(s.fd, noTLS[:])
			s.refuse(errWantsTLS)
		} else {
			s.refuse(errGarbage)
		}
	case !done:
	case !ok:
		s.refuse(errGarbage)
	case h.to != s.it.addr.id:
		s.refuse(errWrongDoor)
	default:
		s.it.judge(s, &h)
	}
	return 0
}

// wordStart is how many bytes tell what a stranger speaks.
const wordStart = 4

// startsTLS reports whether b begins as a TLS ClientHello does: a handshake record
// of version 3.x (RFC 8446, 5.1).
func startsTLS(b *[helloLen]byte) bool { return b[0] == 22 && b[1] == 3 }

// noTLS is a fatal alert, no_application_protocol (RFC 8446, 6.2; RFC 7301, 3.2).
var noTLS = [...]byte{21, 3, 3, 0, 2, 2, 120}

// Why strangers are sent away.
var (
	errGarbage   = errors.New("it does not speak this protocol")
	errWrongDoor = errors.New("it looks for another iface")
	errSilent    = errors.New("it did not introduce itself in time")
	errCrowd     = errors.New("too many others have come since (MAX_STRANGERS)")
	errWantsTLS  = errors.New("it speaks TLS, which is off here")
	errVersion   = errors.New("it speaks another version of this protocol")
	errRail      = errors.New("it wants more connections than MAX_CONN_PER_PEER")
	errFull      = errors.New("there are MAX_CONNS connections")
	errLimits    = errors.New("its SEG_SIZE or limits differ")
)

// refuse sends a stranger away.
func (s *stranger) refuse(why error) {
	s.leave()
	s.it.noteRefusal(why)
}

// refusals is what is known of strangers that were sent away.
type refusals struct {
	last   error
	logged time.Time
	silent uint64 // since then
}

// refusalLog is the time between two lines about refusals: strangers must not
// fill the log.
const refusalLog = time.Second

var logger = log.For(Name)

func (it *Iface) noteRefusal(why error) {
	it.dropped++
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

// judge answers a stranger that has introduced itself, and attaches its
// connection or closes it.
func (it *Iface) judge(s *stranger, h *hello) {
	c, answer, why := it.verdict(h)
	answer.version, answer.msg = helloVersion, msgAnswer
	answer.from, answer.to, answer.conn = it.addr.id, h.from, h.conn
	answer.seg, answer.answers, answer.rail = it.addr.seg, maxAnswers, h.rail
	err := sendHello(it.io, s.fd, &answer)
	if answer.code != codeOK || err != nil {
		s.leave()
		if why != nil {
			it.noteRefusal(why)
		}
		return
	}
	it.forgetStranger(s)
	if c == nil && h.rail > 0 {
		c = it.table[h.from].newRail(h.rail)
	}
	if c == nil {
		c = &conn{it: it, peer: h.from, link: link{fd: -1}}
		if h.from != it.addr.id { // the other end of a connection to ourselves is in the table
			it.know(c)
		}
	}
	if c.try != nil {
		c.try.drop()
		c.try = nil
	}
	c.open(s.link, h.conn)
}

var errReplaced = errors.New("the peer has lost this connection and made another")

// verdict decides about a HELLO. Of two attempts that cross, the one of the side
// with the lower id goes on; both sides come to that by themselves. c is the
// connection to attach the socket to; nil for a new one. why is nil unless the
// answer is a refusal.
func (it *Iface) verdict(h *hello) (c *conn, answer hello, why error) {
	if h.version != helloVersion {
		return nil, hello{code: codeVersion}, fmt.Errorf("%w: %d, this side %d", errVersion, h.version, helloVersion)
	}
	if h.seg != it.addr.seg || h.answers != maxAnswers {
		return nil, hello{code: codeRefused}, errLimits
	}
	if h.from != it.addr.id {
		c = it.table[h.from]
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
		c.fail(errors.Join(ucs.ErrConnReset, errReplaced))
		c = nil
	}
	if c != nil && c.state == connDialing && it.addr.id < h.from {
		return nil, hello{code: codeYield}, nil
	}
	if it.opened >= it.cfg.MaxConns {
		return nil, hello{code: codeRefused}, errFull
	}
	return c, hello{code: codeOK}, nil
}
