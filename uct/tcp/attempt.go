package tcp

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/preface"
	"github.com/gucx/gucx/internal/unordered"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/sockio"
)

// maxTries is how often a connection is dialed when the handshake is cut off or
// finds a connection that only the peer believes in.
const maxTries = 4

// message is a handshake message that comes in pieces. No byte after it is read.
type message struct {
	buf [helloLen]byte
	got int
}

var errDisconnected = errors.New("connection closed during the handshake")

// read continues to read; done is true when the message is there.
func (m *message) read(io sockio.IO, fd int) (done bool, err error) {
	for m.got < helloLen {
		n, errno := io.Recv(fd, m.buf[m.got:])
		switch {
		case sockio.Retry(errno):
			return false, nil
		case errno != 0:
			return false, fmt.Errorf("%w: %w", ucs.ErrConnReset, errno)
		case n == 0:
			return false, fmt.Errorf("%w: %w", ucs.ErrConnReset, errDisconnected)
		}
		m.got += n
	}
	return true, nil
}

// checkVersion looks at an answer of which helloStart bytes are there. One of another version has
// another length.
func (m *message) checkVersion() error {
	h, _ := parseHello(&m.buf, msgAnswer)
	if h.code == codeVersion || hasMagic(&m.buf) && h.version != helloVersion {
		return fmt.Errorf("%w: peer speaks version %d, this side %d", ucs.ErrRejected, h.version, helloVersion)
	}
	return nil
}

// sendHello writes a handshake message, the first bytes on a connected socket: its buffer has
// room. Without k it has no proof.
func sendHello(io sockio.IO, fd int, h *hello, k pairKey, binding []byte) error {
	var b [helloLen]byte
	if h.put(&b); k != nil {
		k.sign(&b, binding)
	}
	return sendAll(io, fd, b[:])
}

// sendAll writes what the empty buffer of a socket has room for.
func sendAll(io sockio.IO, fd int, b []byte) error {
	for sent := 0; sent < len(b); {
		n, errno := io.Send(fd, b[sent:])
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		sent += n
	}
	return nil
}

// attempt is our side of a handshake that we began.
type attempt struct {
	c *conn
	link
	id        uint64
	connected bool
	answer    message
}

// dial begins an attempt.
func (c *conn) dial() {
	it := c.it
	c.tries++
	if err := c.computeSecret(); err != nil {
		c.fail(err)
		return
	}
	l, err := it.dialLink(c.path, c.preface(), c.openWithin())
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", ucs.ErrUnreachable, err))
		return
	}
	t := &attempt{c: c, link: l, id: randomWord()}
	connected := uint32(unix.EPOLLOUT)
	if l.tun != nil {
		connected = unix.EPOLLIN
	}
	if err = t.watch(&it.poll, connected, t); err == nil {
		err = it.tickEvery(deadlineTick)
	}
	if err != nil {
		t.drop()
		c.fail(err)
		return
	}
	c.attempt, c.state = t, connDialing
	it.pollEpollNext()
}

// pair computes the key of the pair, once.
func (c *conn) computeSecret() (err error) {
	if c.secret == nil {
		c.secret, err = pairWith(&c.it.identity, &c.key, c.it.token)
	}
	return err
}

// preface returns the first bytes for the peer; nil if the peer has a port for tcp alone.
func (c *conn) preface() []byte {
	if !c.path.listener {
		return nil
	}
	return preface.Append(nil, c.key.ID())
}

// dialLink begins to connect along p. With TLS, first is sent before the handshake.
func (it *Iface) dialLink(p path, first []byte, within time.Duration) (l link, err error) {
	if it.tunnels != nil {
		l.tun, l.fd, err = it.tunnels.Dial(p.local, p.remote, first, within)
		return l, err
	}
	l.fd, err = dial(p, &it.cfg)
	return l, err
}

// drop gives the attempt up.
func (t *attempt) drop() { t.link.close(&t.c.it.poll) }

// Ready implements epoll.Watcher.
func (t *attempt) Ready(uint32) int {
	if err := t.step(); err != nil {
		t.fail(err)
	}
	return 0
}

func (t *attempt) step() error {
	it := t.c.it
	if !t.connected {
		if ok, err := t.linkReady(); !ok {
			return err
		}
		if err := t.sendHello(); err != nil {
			return fmt.Errorf("%w: %w", ucs.ErrConnReset, err)
		}
		t.connected = true
		it.poll.Change(t.slot, unix.EPOLLIN)
	}
	done, err := t.answer.read(it.io, t.fd)
	if t.answer.got >= helloStart {
		if err := t.answer.checkVersion(); err != nil {
			return err
		}
	}
	if err != nil || !done {
		return err
	}
	return t.handleAnswer()
}

// linked reports whether the link is ready for the HELLO: the socket has connected, and the
// handshake of TLS has succeeded.
func (t *attempt) linkReady() (ok bool, err error) {
	if t.tun == nil {
		if err := connected(t.fd); err != nil {
			return false, fmt.Errorf("%w: %w", dialCause(err), err)
		}
		return true, nil
	}
	var ready [1]byte
	n, errno := t.c.it.io.Recv(t.fd, ready[:])
	switch {
	case sockio.Retry(errno):
		return false, nil
	case errno != 0, n == 0:
		return false, fmt.Errorf("%w: %w", ucs.ErrConnReset, errDisconnected)
	}
	return true, nil
}

// dialCause is the status that tells why a connect failed.
func dialCause(err error) error {
	if errors.Is(err, syscall.ETIMEDOUT) {
		return ucs.ErrTimedOut
	}
	return ucs.ErrUnreachable
}

func (t *attempt) sendHello() error {
	it := t.c.it
	it.sentHellos++
	if first := t.c.preface(); t.tun == nil && first != nil {
		if err := sendAll(it.io, t.fd, first); err != nil {
			return err
		}
	}
	return sendHello(it.io, t.fd, &hello{
		version: helloVersion, msg: msgHello, from: it.addr.key, to: t.c.key.ID(),
		conn: t.id, other: t.c.replaces, seg: it.addr.seg, replies: maxReplies, rail: t.c.rail, number: it.sentHellos,
	}, t.c.secret, t.binding())
}

// answered acts on the peer's answer.
func (t *attempt) handleAnswer() error {
	h, ok := parseHello(&t.answer.buf, msgAnswer)
	if ok && h.code == codeTLS {
		return fmt.Errorf("%w: the peer demands TLS, which is off here", ucs.ErrRejected)
	}
	if !ok || h.from != t.c.key || h.to != t.c.it.addr.key.ID() || !t.c.secret.proves(&t.answer.buf, t.binding()) {
		return fmt.Errorf("%w: not an answer of the peer", ucs.ErrRejected)
	}
	switch c := t.c; h.code {
	case codeOK:
		if h.conn != t.id || h.seg != c.it.addr.seg || h.replies != maxReplies || h.rail != c.rail {
			return fmt.Errorf("%w: answer does not fit the question", ucs.ErrRejected)
		}
		if c.main != nil && c.main.certName != t.peerName() {
			return fmt.Errorf("%w: %w", ucs.ErrRejected, errOtherCert)
		}
		c.open(t.link, t.id)
		return nil
	case codeYield:
		t.drop()
		c.attempt, c.state = nil, connWaiting
		c.countDial(false)
		return nil
	case codeOpen:
		t.drop()
		c.attempt, c.replaces = nil, h.other
		return c.retry(errors.New("the peer insists on another connection"))
	}
	return fmt.Errorf("%w: by the peer's limits", ucs.ErrRejected)
}

// again dials once more, or returns err when that was tried often enough.
func (c *conn) retry(err error) error {
	if c.tries >= maxTries {
		return fmt.Errorf("%w: %w", ucs.ErrRejected, err)
	}
	c.dial()
	return nil
}

// failed ends the attempt; being cut off may have been bad luck, so it is tried
// again.
func (t *attempt) fail(err error) {
	c := t.c
	err = t.tun.Cause(err)
	if c.attempt == t {
		t.drop()
		c.attempt = nil
	}
	if errors.Is(err, ucs.ErrConnReset) {
		if err = c.retry(err); err == nil {
			return
		}
	}
	if c.path.other != nil {
		c.path, c.tries = *c.path.other, 0
		c.dial()
		return
	}
	c.fail(fmt.Errorf("connect: %w", err))
}

// dropPending takes c from the connections that are to open.
func (it *Iface) stopTimeout(c *conn) {
	c.countDial(false)
	if i := slices.Index(it.opening, c); i >= 0 {
		unordered.Remove(&it.opening, i)
	}
}
