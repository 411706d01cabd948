package bootstrap

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"
)

// Request is a dialer that waits for a reply, or that was accepted and has not connected yet. Hello,
// From and Local do not change. Any goroutine may call its methods.
type Request struct {
	Hello Hello
	From  Identity
	Local netip.AddrPort // local address of the socket; the zero AddrPort over unix

	l      *Listener
	source source

	session *session        // nil without a token; of the goroutine of serve
	conn    net.Conn        // the socket
	plain   net.Conn        // conn, which returns the first bytes again
	secret  net.Conn        // plain, or TLS over it
	answer  chan []byte     // capacity one
	done    chan struct{}   // closed by Connected
	ctx     context.Context // canceled with the listener, or by Close
	cancel  context.CancelFunc
	hungUp  chan struct{} // closed when the socket is closed or reads fail
	freed   chan struct{} // receives a value when a place may be available; capacity one
	taken   chan struct{} // closed by DataConn.Take of a data connection

	// Under l.mu.
	inbox       *Inbox // inbox of the worker that replies
	stage       stage
	staged      time.Time // time at which stage began
	evicted     bool      // evicted for another connection
	interrupted bool      // reads and writes fail
	closed      bool      // the listener is closed or has replied: events of the socket have no effect
	gone        bool      // the dialer has closed, or can receive no reply
}

func newRequest(l *Listener, conn net.Conn, from Identity) *Request {
	r := &Request{
		From: from, Local: addrOf(conn.LocalAddr()), l: l, inbox: l.inbox, source: from.source(), conn: conn, plain: afterDeadline{conn}, secret: afterDeadline{conn},
		answer: make(chan []byte, 1), done: make(chan struct{}), hungUp: make(chan struct{}),
		freed: make(chan struct{}, 1), taken: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(l.ctx)
	return r
}

// Gone reports whether the dialer has closed its socket before the owner called Connected or
// Drop.
func (r *Request) Gone() bool {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.gone
}

// Accept replies that the dialer may connect. The caller may call it once, and not after Reject.
func (r *Request) Accept(a *Answer) { r.answer <- a.append(nil) }

// Reject replies that the dialer may not connect, with private data of at most MaxPrivate bytes and the first
// MaxReasons reasons. The caller may call it once, and not after Accept.
func (r *Request) Reject(why Code, private []byte, reasons ...Reason) {
	r.l.cfg.Stats.count(&r.l.cfg.Stats.rejected)
	r.close()
	r.answer <- rejection(why, private, reasons...)
}

// Connected sends DONE to the dialer and closes the socket. The caller must call it once, after Accept, when the
// dialer has connected.
func (r *Request) Connected() {
	r.close()
	close(r.done)
}

// Drop closes the socket of a request that failed. Idempotent.
func (r *Request) Drop() {
	r.close()
	r.cancel()
}

func (r *Request) close() {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.closed = true
	r.inbox.remove(r)
}

// serve handles the connection until it is closed.
func (r *Request) serve() {
	defer r.remove()
	defer r.cancel()
	defer r.conn.Close()
	if !r.readFirst() || !r.l.awaitPlace(r) || !r.readHello() {
		return
	}
	go func() {
		defer close(r.hungUp)
		_, _ = r.conn.Read(make([]byte, 1)) // a dialer sends nothing more, so Read returns at the end of the socket
	}()
	r.l.inbox.add(r)
	r.respond()
	r.notifyGone()
	<-r.hungUp
}

// remove releases the place of the connection.
func (r *Request) remove() {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.l.leaveLobby(r)
	r.l.leavePlace(r)
}

// readHello reads the HELLO within the time limit that Listener.enter has set. It returns false
// if no valid HELLO arrives.
func (r *Request) readHello() bool {
	stop := context.AfterFunc(r.ctx, func() { r.l.interrupt(r) })
	defer stop()
	err := r.secure()
	if err == nil {
		err = r.authenticate()
	}
	if err == nil {
		r.Hello, err = r.receiveHello()
	}
	if err != nil {
		r.rejectInvalid(err)
		return false
	}
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if r.interrupted {
		return false
	}
	r.stage, r.staged = stageOwner, time.Now()
	_ = r.conn.SetDeadline(time.Time{})
	return r.ctx.Err() == nil
}

// receiveHello reads a HELLO.
func (r *Request) receiveHello() (Hello, error) {
	h, body, err := r.session.receive(r.secret, kindHello, kindChallenge)
	switch {
	case err != nil:
		return Hello{}, err
	case h.kind == kindChallenge:
		return Hello{}, errRequiresToken
	}
	return parseHello(body)
}

// rejectInvalid counts a connection without a valid HELLO, and sends a REJECT if the dialer can read it.
func (r *Request) rejectInvalid(err error) {
	s := r.l.cfg.Stats
	switch {
	case r.wasEvicted() && r.canReply():
		r.rejectWith(CodeTooMany)
	case r.ctx.Err() != nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.count(&s.silent)
	case errors.Is(err, errVersion):
		s.count(&s.malformed)
		r.rejectWith(CodeVersion)
	case errors.Is(err, errRequiresTLS):
		s.count(&s.unauthenticated)
		reject(r.conn, CodeNoTLS)
	case errors.Is(err, errNoTLS):
		s.count(&s.unauthenticated)
		reject(r.conn, CodeTLS)
	case errors.Is(err, errNoToken):
		s.count(&s.unauthenticated)
		r.rejectWith(CodeToken)
	case errors.Is(err, errRequiresToken):
		s.count(&s.unauthenticated)
		r.rejectWith(CodeNoToken)
	case errors.Is(err, errWrongProof):
		s.count(&s.unauthenticated)
		r.rejectWith(CodeWrongToken)
	case errors.Is(err, ErrUnauthenticated):
		s.count(&s.unauthenticated)
	default:
		s.count(&s.malformed)
	}
}

// wasEvicted reports whether the connection was evicted.
func (r *Request) wasEvicted() bool {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.evicted
}

// canReply reports whether the dialer can read a message: with TLS only after the TLS handshake.
func (r *Request) canReply() bool {
	return r.secret != r.plain || !r.requiresTLS()
}

// respond sends the reply of the owner. After an ACCEPT it waits until the dialer has
// connected or one side has closed, and sends the reason if this side closes.
func (r *Request) respond() {
	var answer []byte
	select {
	case answer = <-r.answer:
	case <-r.hungUp:
		return
	case <-r.ctx.Done():
		return
	}
	r.l.replied(r)
	if !r.send(answer) || kind(answer[kindAt]) == kindReject {
		return
	}
	select {
	case <-r.done:
		r.send(doneMessage)
	case <-r.hungUp:
	case <-r.ctx.Done():
		if r.wasEvicted() {
			r.rejectWith(CodeTooMany)
		}
	}
}

// send sends a reply without blocking on a dialer that does not read.
func (r *Request) send(answer []byte) bool {
	_ = r.conn.SetWriteDeadline(time.Now().Add(r.l.cfg.HelloTimeout))
	stop := context.AfterFunc(r.ctx, func() { _ = r.conn.SetWriteDeadline(past) })
	defer stop()
	_, err := r.secret.Write(r.session.seal(answer))
	return err == nil
}

// notifyGone queues the request for Take again if Take has returned it and its owner waits for the dialer, which is
// gone. A request that Take has not returned is removed.
func (r *Request) notifyGone() {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.gone = true
	_ = r.conn.SetReadDeadline(past)
	if !r.closed && !r.inbox.remove(r) {
		r.inbox.add(r)
	}
}

// doneMessage is a DONE message.
var doneMessage = appendMessage(nil, kindDone, 0, func(b []byte) []byte { return b })

// reject replies to a connection without a request. The reply fits the empty buffer of the
// socket, so the write does not block. It has no time limit, because the reply would be lost if the process is
// stopped before the write.
func reject(conn net.Conn, why Code) { writeNow(conn, rejection(why, nil)) }

// rejectWith is reject for a connection that may have a session.
func (r *Request) rejectWith(why Code) { writeNow(r.secret, r.session.seal(rejection(why, nil))) }

func writeNow(conn net.Conn, b []byte) {
	_ = conn.SetWriteDeadline(time.Time{})
	_, _ = conn.Write(b)
}
