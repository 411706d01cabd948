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

// maxTries is the maximum number of attempts to dial a connection. It is dialed again if the peer
// closes the socket during the handshake, or reports a connection that this side has lost.
const maxTries = 4

// message is a handshake message, which may arrive in pieces. Its methods read no byte after it.
type message struct {
	buf [helloLen]byte
	got int
}

var errDisconnected = errors.New("connection closed during the handshake")

// read reads the rest of the message; done is true when the message is complete.
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

// checkVersion checks the version of an answer of which helloStart bytes have arrived. An answer of
// another version may have another length.
func (m *message) checkVersion() error {
	h, _ := parseHello(&m.buf, msgAnswer)
	if h.code == codeVersion || hasMagic(&m.buf) && h.version != helloVersion {
		return fmt.Errorf("%w: peer speaks version %d, this side %d", ucs.ErrRejected, h.version, helloVersion)
	}
	return nil
}

// sendHello writes a handshake message, the first bytes on a connected socket, whose send buffer
// has room for it. If k is nil, the message has no proof.
func sendHello(io sockio.IO, fd int, h *hello, k pairKey, binding []byte) error {
	var b [helloLen]byte
	if h.put(&b); k != nil {
		k.sign(&b, binding)
	}
	return sendAll(io, fd, b[:])
}

// sendAll writes b to a socket whose send buffer is empty and larger than b.
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

// attempt is a handshake that this side started.
type attempt struct {
	c *conn
	link
	id        uint64
	connected bool
	answer    message
}

// dial starts an attempt.
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

// computeSecret computes the shared key with the peer, unless that was done before.
func (c *conn) computeSecret() (err error) {
	if c.secret == nil {
		c.secret, err = pairWith(&c.it.identity, &c.key, c.it.token)
	}
	return err
}

// preface returns the bytes that precede the HELLO; nil if the path leads to a port of the iface
// itself.
func (c *conn) preface() []byte {
	if !c.path.listener {
		return nil
	}
	return preface.Append(nil, c.key.ID())
}

// dialLink starts to connect along p. With TLS, first is sent before the TLS handshake.
func (it *iface) dialLink(p path, first []byte, within time.Duration) (l link, err error) {
	if it.tunnels != nil {
		l.tun, l.fd, err = it.tunnels.Dial(p.local, p.remote, first, within)
		return l, err
	}
	l.fd, err = it.dialSocket(p, &it.cfg)
	return l, err
}

// drop closes the link of the attempt.
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

// linkReady reports whether the HELLO can be sent: the socket is connected and, with TLS, the TLS
// handshake has succeeded.
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

// dialCause returns the error class of a failed connect.
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
		conn: t.id, other: t.c.replaces, seg: it.addr.seg, replies: maxReplies, rail: t.c.rail, number: it.sentHellos, features: it.features(),
	}, t.c.secret, t.binding())
}

// handleAnswer handles the answer of the peer.
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
			return fmt.Errorf("%w: answer does not match the HELLO", ucs.ErrRejected)
		}
		if c.main != nil && c.main.certName != t.peerName() {
			return fmt.Errorf("%w: %w", ucs.ErrRejected, errOtherCert)
		}
		c.canClose = c.it.canClose(&c.key, h.features)
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
		return c.retry(errors.New("the peer reports another open connection"))
	}
	return fmt.Errorf("%w: by a limit of the peer", ucs.ErrRejected)
}

// retry dials again. After maxTries attempts it returns err.
func (c *conn) retry(err error) error {
	if c.tries >= maxTries {
		return fmt.Errorf("%w: %w", ucs.ErrRejected, err)
	}
	c.dial()
	return nil
}

// fail handles the error of an attempt: it dials again if the peer closed the socket, then tries
// the other path, and at last fails the connection.
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

// stopTimeout stops the timeout for opening c.
func (it *iface) stopTimeout(c *conn) {
	c.countDial(false)
	if i := slices.Index(it.opening, c); i >= 0 {
		unordered.Remove(&it.opening, i)
	}
}
