package tcp

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
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
	it    *Iface
	fd    int
	slot  int32
	limit time.Time
	hello message
}

// meet takes an accepted connection; the oldest stranger makes room for it.
func (it *Iface) meet(fd int) {
	if len(it.strangers) >= it.cfg.Strangers {
		it.strangers[0].leave()
		it.dropped++
	}
	s := &stranger{it: it, fd: fd, limit: time.Now().Add(it.cfg.HelloTimeout)}
	var err error
	if s.slot, err = it.poll.watch(fd, unix.EPOLLIN, s); err == nil {
		it.strangers = append(it.strangers, s)
		err = it.poll.tick(true)
	}
	if err != nil {
		it.dropped++
		if !it.forgetStranger(s) {
			_ = unix.Close(fd)
		}
		return
	}
	s.ready(unix.EPOLLIN) // what it says is often there already
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
	_ = s.it.poll.forget(s.slot)
}

// expireStrangers closes those whose time is over; the oldest are first.
func (it *Iface) expireStrangers(now time.Time) {
	for len(it.strangers) > 0 && now.After(it.strangers[0].limit) {
		it.strangers[0].leave()
		it.dropped++
	}
}

// ready implements watcher.
func (s *stranger) ready(uint32) int {
	done, err := s.hello.read(s.it.io, s.fd)
	if err != nil {
		s.leave()
		s.it.dropped++
		return 0
	}
	if !done {
		if s.hello.got >= 4 && !looksRight(&s.hello.buf) {
			s.leave()
			s.it.dropped++
		}
		return 0
	}
	h, ok := parseHello(&s.hello.buf, msgHello)
	if !ok || h.to != s.it.addr.id {
		s.leave()
		s.it.dropped++
		return 0
	}
	s.it.judge(s, &h)
	return 0
}

// judge answers a stranger that has introduced itself, and attaches its
// connection or closes it.
func (it *Iface) judge(s *stranger, h *hello) {
	c, answer := it.verdict(h)
	answer.version, answer.msg = helloVersion, msgAnswer
	answer.from, answer.to, answer.conn = it.addr.id, h.from, h.conn
	answer.seg, answer.answers = it.addr.seg, maxAnswers
	err := sendHello(it.io, s.fd, &answer)
	if answer.code != codeOK || err != nil {
		s.leave()
		return
	}
	it.forgetStranger(s)
	if c == nil {
		c = &conn{it: it, peer: h.from, fd: -1}
		if h.from != it.addr.id { // the other end of a connection to ourselves is in the table
			it.table[h.from] = c
		}
	}
	if c.try != nil {
		c.try.drop()
		c.try = nil
	}
	c.open(s.fd, s.slot, h.conn)
}

var errReplaced = errors.New("the peer has lost this connection and made another")

// verdict decides about a HELLO. Of two attempts that cross, the one of the side
// with the lower id goes on; both sides come to that by themselves. c is the
// connection to attach the socket to; nil for a new one.
func (it *Iface) verdict(h *hello) (c *conn, answer hello) {
	if h.version != helloVersion {
		return nil, hello{code: codeVersion}
	}
	if h.seg != it.addr.seg || h.answers != maxAnswers {
		return nil, hello{code: codeRefused}
	}
	if h.from != it.addr.id {
		c = it.table[h.from]
	}
	if c != nil && c.state == connOpen {
		if h.other != c.id {
			return nil, hello{code: codeOpen, other: c.id}
		}
		c.fail(errors.Join(ucs.ErrConnReset, errReplaced))
		c = nil
	}
	if c != nil && c.state == connDialing && it.addr.id < h.from {
		return nil, hello{code: codeYield}
	}
	if it.opened >= it.cfg.MaxConns {
		return nil, hello{code: codeRefused}
	}
	return c, hello{code: codeOK}
}
