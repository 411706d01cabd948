package ucprpc

import (
	"context"
	"sync"
	"time"

	"github.com/gucx/gucx/ucp"
)

// Call is a request that a handler handles. The handler must not use it after it has returned.
type Call struct {
	// Data is the request. The handler must not write to it. It is nil for a handler with OnDemand if the data
	// has not arrived: see Recv.
	Data []byte
	// Length is the length of the request in bytes.
	Length int
	// Reply is the reply, of any length. The handler appends to it. ReplyWith replies without a copy.
	Reply []byte

	p          *Peer
	l          *loop
	h          header
	hd         *handler
	prev, next *Call // in Peer.running; free calls by next
	finishing  task
	sending    ucp.OpParams
	receiving  ucp.OpParams
	hdr        [headerLen]byte
	buf        []byte // for the request
	out        []byte // for the reply
	shared     []byte // of ReplyWith
	err        error
	charged    int64
	deadline   time.Time // zero if there is none
	msg        *ucp.ActiveMessage
	request    *ucp.Request // a receive or the send of the reply
	rejected   bool

	mu   sync.Mutex // of ctx, end and cause: the driver cancels a call that a goroutine handles
	ctx  context.Context
	end  context.CancelCauseFunc
	stop context.CancelFunc
	why  error
}

// Peer returns the connection over which the request arrived.
func (c *Call) Peer() *Peer { return c.p }

// Deadline returns when the caller stops waiting; ok is false if it waits without limit.
func (c *Call) Deadline() (t time.Time, ok bool) { return c.deadline, !c.deadline.IsZero() }

// Context returns a context that ends when the caller cancels the call, its deadline has passed, or its connection has
// failed. Context allocates; a handler that does not wait does not need it.
func (c *Call) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil {
		c.ctx, c.end = context.WithCancelCause(context.Background())
		if !c.deadline.IsZero() {
			c.ctx, c.stop = context.WithDeadline(c.ctx, c.deadline)
		}
		if c.why != nil {
			c.end(c.why)
		}
	}
	return c.ctx
}

// cancel ends the context of the call.
func (c *Call) cancel(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.why = why
	if c.end != nil {
		c.end(why)
	}
}

// ReplyWith replies with b instead of Reply. The program must not modify b afterwards, not even when the handler has
// returned.
func (c *Call) ReplyWith(b []byte) { c.shared = b }

// Recv receives the Length bytes of a request with OnDemand to buf. The handler may call it once, and must not use buf
// before Recv has returned.
func (c *Call) Recv(ctx context.Context, buf []byte) error {
	if c.msg == nil {
		copy(buf, c.Data)
		return nil
	}
	_, err := c.p.execute(ctx, operation{op: opRecv, data: buf, msg: c.msg})
	return err
}

// newCall returns the record of a new request.
func (l *loop) newCall(p *Peer, h *header, hd *handler) *Call {
	c := l.freeCalls
	if c == nil {
		c = &Call{l: l}
		c.finishing.run = c.finish
		c.sending.OnDone, c.receiving.OnDone = c.onSent, c.onReceived
	} else {
		l.freeCalls = c.next
	}
	c.p, c.h, c.hd = p, *h, hd
	c.Reply = c.out[:0]
	if h.timeout != 0 {
		c.deadline = time.Now().Add(time.Duration(h.timeout) * time.Microsecond)
	}
	return c
}

// handleRequest runs the handler of a request, or rejects the request.
func (l *loop) handleRequest(p *Peer, h *header, name []byte, m *ucp.ActiveMessage) {
	hd := l.n.handlers.find(h.number, name)
	if code := l.admit(p, hd, m.Length); code != 0 {
		l.reject(p, h, code)
		return
	}
	c := l.newCall(p, h, hd)
	l.stats[0].Inc()
	c.Length = m.Length
	c.charged = int64(m.Length)
	l.inFlight++
	l.bytes += c.charged
	p.inFlight++
	p.bytes += c.charged
	c.prev, c.next = p.running.prev, &p.running
	c.prev.next, c.next.prev = c, c
	here := m.Data != nil || m.Length == 0
	switch {
	case here && hd.Inline:
		c.Data = m.Data
		c.handle()
		return
	case !here && hd.OnDemand:
		c.msg = m.Keep()
		c.start()
		return
	}
	if cap(c.buf) < m.Length {
		c.buf = make([]byte, m.Length)
	}
	c.Data = c.buf[:m.Length]
	r, err := m.Recv(c.Data, &c.receiving)
	switch {
	case err != nil: // the peer is gone
		c.free()
	case r != nil:
		c.request = r
	default:
		c.start()
	}
}

// admit returns why a request is rejected; 0 if it is not.
func (l *loop) admit(p *Peer, hd *handler, n int) Code {
	cfg := &l.n.cfg
	switch {
	case l.draining:
		return CodeDraining
	case hd == nil:
		return CodeNoMethod
	case n > cfg.MaxRequest:
		return CodeTooLong
	case p.inFlight >= cfg.PeerCalls, l.inFlight >= cfg.WorkerCalls,
		p.bytes > 0 && p.bytes+int64(n) > cfg.PeerBytes, l.bytes > 0 && l.bytes+int64(n) > cfg.WorkerBytes:
		return CodeBusy
	}
	return 0
}

// maxRejections limits the rejections for a peer that are not sent yet. Each uses about 1 KiB of memory.
const maxRejections = 1024

// reject replies with a code to a request without calling a handler. A peer that does not receive its rejections is
// disconnected.
func (l *loop) reject(p *Peer, h *header, code Code) {
	l.stats[code].Inc()
	if h.kind == kindOneWay {
		return
	}
	if p.rejecting >= maxRejections {
		l.stats[violations].Inc()
		p.disconnect(errViolation)
		return
	}
	c := l.newCall(p, h, nil)
	c.rejected = true
	p.rejecting++
	c.err = &Error{Code: code}
	c.finish()
}

// onReceived is called when the request is complete.
func (c *Call) onReceived(err error) {
	c.l.events++
	c.request.Release()
	c.request = nil
	if err != nil || c.p.gone != nil {
		c.free()
		return
	}
	c.start()
}

// start runs the handler: inline if it is an inline handler, otherwise in a goroutine.
func (c *Call) start() {
	l := c.l
	if c.hd.Inline && c.msg == nil {
		c.handle()
		return
	}
	select {
	case l.work <- c:
	default:
		l.running.Add(1)
		go l.handleCalls(c)
	}
	l.woken = true
}

// maxIdle limits the goroutines that wait for the next call.
const maxIdle = 64

// handleCalls handles a call, then further ones.
func (l *loop) handleCalls(c *Call) {
	defer l.running.Done()
	for more := true; more; {
		c.err = c.run()
		l.submit(&c.finishing)
		if l.idle.Add(1) > maxIdle {
			l.idle.Add(-1)
			return
		}
		c, more = <-l.work
		l.idle.Add(-1)
	}
}

// handle runs the handler inline.
func (c *Call) handle() {
	c.err = c.run()
	c.finish()
}

// run runs the handler, unless the deadline has passed.
func (c *Call) run() error {
	if !c.deadline.IsZero() && time.Now().After(c.deadline) {
		return &Error{Code: CodeDeadline}
	}
	return c.hd.f(c)
}

// finish sends the reply.
func (c *Call) finish() {
	if c.msg != nil {
		c.msg.Release()
		c.msg = nil
	}
	if c.h.kind == kindOneWay || c.p.gone != nil {
		c.free()
		return
	}
	h := header{kind: kindReply, id: c.h.id}
	if c.err != nil {
		if !c.rejected && CodeOf(c.err) == CodeDraining { // from a server that the handler called; this handler has run
			c.err = &Error{Code: CodeFailed, Text: c.err.Error()}
		}
		h.number = uint16(CodeOf(c.err))
		c.Reply, c.shared = append(c.Reply[:0], errorText(c.err)...), nil
	}
	h.pack(c.hdr[:], "")
	reply := c.Reply
	if c.shared != nil {
		reply = c.shared
	}
	c.charge(int64(len(reply)))
	r, err := c.p.ep.SendActive(amID, c.hdr[:], reply, &c.sending)
	c.l.pushes = true
	if r == nil || err != nil { // an error means that the peer is gone
		c.free()
		return
	}
	c.request = r
}

// charge counts n bytes more for the call against the limits.
func (c *Call) charge(n int64) {
	if !c.rejected {
		c.charged += n
		c.p.bytes += n
		c.l.bytes += n
	}
}

// onSent is called when ucp no longer uses the reply.
func (c *Call) onSent(error) {
	c.l.events++
	c.request.Release()
	c.request = nil
	c.free()
}

// maxPooledBuf is the largest capacity of a buffer, in bytes, that remains in a free record.
const maxPooledBuf = 16 << 10

// free ends the call and returns its record.
func (c *Call) free() {
	l, p := c.l, c.p
	if c.rejected {
		p.rejecting--
	} else {
		c.prev.next, c.next.prev = c.next, c.prev
		l.inFlight--
		l.bytes -= c.charged
		p.inFlight--
		p.bytes -= c.charged
	}
	if c.end != nil {
		c.cancel(context.Canceled)
		if c.stop != nil {
			c.stop()
		}
	}
	if c.out = nil; cap(c.Reply) <= maxPooledBuf {
		c.out = c.Reply[:0]
	}
	if cap(c.buf) > maxPooledBuf {
		c.buf = nil
	}
	c.Data, c.Reply, c.shared, c.err, c.p, c.hd, c.prev, c.charged, c.rejected = nil, nil, nil, nil, nil, nil, nil, 0, false
	c.ctx, c.end, c.stop, c.why, c.deadline = nil, nil, nil, nil, time.Time{}
	c.next, l.freeCalls = l.freeCalls, c
	l.checkQuiet()
}
