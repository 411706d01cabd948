package bootstrap

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"
)

// Request is a dialer that waits for an answer, or has one and has not connected yet. Hello,
// From and Local do not change. Its methods may be called by any goroutine.
type Request struct {
	Hello Hello
	From  Identity
	Local netip.AddrPort // of the socket; the zero AddrPort over unix

	l      *Listener
	source source

	session *session        // nil without a token; of the goroutine of serve
	conn    net.Conn        // the socket
	plain   net.Conn        // what is read from conn, the first bytes included
	secret  net.Conn        // what is read from and written to: plain, or TLS over it
	answer  chan []byte     // has room for one
	done    chan struct{}   // closed by Connected
	ctx     context.Context // ends with the listener, or by Close
	cancel  context.CancelFunc
	hungUp  chan struct{} // closed when nothing more can be read
	freed   chan struct{} // a place is free, or one may be evicted; has room for one
	taken   chan struct{} // of a data connection: closed by DataConn.Take

	// Under l.mu.
	stage   stage
	staged  time.Time // when stage began
	evicted bool      // for another connection
	hanging bool      // no more bytes are read or written
	closed  bool      // the listener is closed or has decided: events of the socket have no effect
	gone    bool      // the dialer has hung up, or gets no answer any more
}

func newRequest(l *Listener, conn net.Conn, from Identity) *Request {
	r := &Request{
		From: from, Local: addrOf(conn.LocalAddr()), l: l, source: from.source(), conn: conn, plain: arrived{conn}, secret: arrived{conn},
		answer: make(chan []byte, 1), done: make(chan struct{}), hungUp: make(chan struct{}),
		freed: make(chan struct{}, 1), taken: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(l.ctx)
	return r
}

// Gone reports that the dialer has hung up, without having connected as far as the owner has
// told by Close.
func (r *Request) Gone() bool {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.gone
}

// Accept answers that the dialer may connect. Once, and not after Reject.
func (r *Request) Accept(a *Answer) { r.answer <- a.append(nil) }

// Reject answers that it may not, with private data of MaxPrivate bytes at most and the first
// MaxReasons reasons. Once, and not after Accept.
func (r *Request) Reject(why Code, private []byte, reasons ...Reason) {
	r.l.cfg.Stats.count(&r.l.cfg.Stats.rejected)
	r.close()
	r.answer <- rejection(why, private, reasons...)
}

// Connected sends the dialer DONE and closes the socket. The caller calls it once, after Accept, when the
// dialer has connected.
func (r *Request) Connected() {
	r.close()
	close(r.done)
}

// Drop hangs up: nothing came of the request. Idempotent.
func (r *Request) Drop() {
	r.close()
	r.cancel()
}

func (r *Request) close() {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.closed = true
	r.l.queue = slices.DeleteFunc(r.l.queue, func(o *Request) bool { return o == r })
}

// serve deals with the connection until it is over.
func (r *Request) serve() {
	defer r.remove()
	defer r.cancel()
	defer r.conn.Close()
	if !r.readFirst() || !r.l.awaitPlace(r) || !r.readHello() {
		return
	}
	go func() {
		defer close(r.hungUp)
		_, _ = r.conn.Read(make([]byte, 1)) // a dialer has nothing more to say
	}()
	r.l.put(r)
	r.respond()
	r.leave()
	<-r.hungUp
}

// remove gives the place of the connection back.
func (r *Request) remove() {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.l.leaveLobby(r)
	r.l.leavePlace(r)
}

// readHello reads the HELLO, within the time that Listener.enter has given. It reports false
// if there is none.
func (r *Request) readHello() bool {
	stop := context.AfterFunc(r.ctx, func() { r.l.hangUp(r) })
	defer stop()
	err := r.secure()
	if err == nil {
		err = r.authenticate()
	}
	if err == nil {
		r.Hello, err = r.receiveHello()
	}
	if err != nil {
		r.turnAway(err)
		return false
	}
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	if r.hanging {
		return false
	}
	r.stage, r.staged = stageOwner, time.Now()
	_ = r.conn.SetDeadline(time.Time{})
	return r.ctx.Err() == nil
}

// receiveHello reads a HELLO.
func (r *Request) receiveHello() (Hello, error) {
	h, body, err := r.session.receive(r.secret)
	switch {
	case err != nil:
		return Hello{}, err
	case h.kind == kindChallenge:
		return Hello{}, errWantsToken
	case h.kind != kindHello:
		return Hello{}, malformed("message of kind %d", h.kind)
	}
	return parseHello(body)
}

// turnAway counts a connection without a HELLO, and answers if that makes sense.
func (r *Request) turnAway(err error) {
	s := r.l.cfg.Stats
	switch {
	case r.wasEvicted() && r.answerable():
		r.refuse(CodeTooMany)
	case r.ctx.Err() != nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.count(&s.silent)
	case errors.Is(err, errVersion):
		s.count(&s.malformed)
		r.refuse(CodeVersion)
	case errors.Is(err, errWantsTLS):
		s.count(&s.unauthenticated)
		refuse(r.conn, CodeNoTLS)
	case errors.Is(err, errNoTLS):
		s.count(&s.unauthenticated)
		refuse(r.conn, CodeTLS)
	case errors.Is(err, errNoToken):
		s.count(&s.unauthenticated)
		r.refuse(CodeToken)
	case errors.Is(err, errWantsToken):
		s.count(&s.unauthenticated)
		r.refuse(CodeNoToken)
	case errors.Is(err, errWrongProof):
		s.count(&s.unauthenticated)
		r.refuse(CodeWrongToken)
	case errors.Is(err, ErrUnauthenticated):
		s.count(&s.unauthenticated)
	default:
		s.count(&s.malformed)
	}
}

// wasEvicted reports whether another connection has the place of this one.
func (r *Request) wasEvicted() bool {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.evicted
}

// answerable reports whether the dialer understands a message: not before a TLS handshake is over.
func (r *Request) answerable() bool {
	return r.secret != r.plain || !r.demandsTLS()
}

// respond sends the answer when the owner has one. After an ACCEPT it waits until the dialer has
// connected or has hung up, or the owner has, and says why it hangs up.
func (r *Request) respond() {
	var answer []byte
	select {
	case answer = <-r.answer:
	case <-r.hungUp:
		return
	case <-r.ctx.Done():
		return
	}
	r.l.answered(r)
	if !r.send(answer) || kind(answer[kindAt]) == kindReject {
		return
	}
	select {
	case <-r.done:
		r.send(doneMessage)
	case <-r.hungUp:
	case <-r.ctx.Done():
		if r.wasEvicted() {
			r.refuse(CodeTooMany)
		}
	}
}

// send sends an answer, which a dialer that takes nothing does not hold up.
func (r *Request) send(answer []byte) bool {
	_ = r.conn.SetWriteDeadline(time.Now().Add(r.l.cfg.HelloTimeout))
	stop := context.AfterFunc(r.ctx, func() { _ = r.conn.SetWriteDeadline(past) })
	defer stop()
	_, err := r.secret.Write(r.session.seal(answer))
	return err == nil
}

// leave tells the owner that the dialer has gone, if it has taken the request and wants to
// know.
func (r *Request) leave() {
	if r.note() {
		r.l.cfg.Notify()
	}
}

// note enters the request for Take once more, and reports whether it did. One that was not
// taken yet is forgotten.
func (r *Request) note() bool {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	r.gone = true
	_ = r.conn.SetReadDeadline(past)
	if r.closed {
		return false
	}
	if i := slices.Index(l.queue, r); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		return false
	}
	l.queue = append(l.queue, r)
	return true
}

// doneMessage is a DONE.
var doneMessage = appendMessage(nil, kindDone, 0, func(b []byte) []byte { return b })

// refuse answers a connection that has no request. The answer fits into the empty buffer of the
// socket, so that the write does not wait: a time limit would only lose it where the process is
// stopped before the write.
func refuse(conn net.Conn, why Code) { writeNow(conn, rejection(why, nil)) }

// refuse is refuse for a connection that may have a session.
func (r *Request) refuse(why Code) { writeNow(r.secret, r.session.seal(rejection(why, nil))) }

func writeNow(conn net.Conn, b []byte) {
	_ = conn.SetWriteDeadline(time.Time{})
	_, _ = conn.Write(b)
}
