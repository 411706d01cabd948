package ucprpc

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gucx/gucx/ucp"
)

// Call is a request that a handler handles. The program must not use it after the handler has returned, or, if that returned
// ErrPending, after Finish.
type Call struct {
	// Data is the request. The program must not write to it. It is nil for a handler with OnDemand if the data
	// has not arrived: see Recv. After a handler that runs inline has returned, Data is not valid.
	Data []byte
	// Length is the length of the request in bytes.
	Length int
	// Reply is the reply, of any length. The handler appends to it. ReplyWith replies without a copy.
	Reply []byte

	p          *Peer
	l          *loop
	h          header
	hd         *handler
	index      int    // in Peer.running
	nextFree   *Call  // in loop.freeCalls
	handleTask func() // handle
	replyTask  func() // sendReply
	sending    ucp.OpParams
	receiving  ucp.OpParams
	hdr        [headerLen]byte
	buf        []byte // for the request
	shared     []byte // of ReplyWith
	err        error
	charged    int64
	deadline   time.Time // zero if there is none
	msg        *ucp.ActiveMessage

	mu        sync.Mutex // of these fields: the driver cancels a call that a goroutine handles
	ctx       context.Context
	cancelCtx context.CancelCauseFunc // cancels ctx
	stopTimer context.CancelFunc      // of the deadline of ctx
	why       error                   // why the call was canceled; nil until then
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
		c.ctx, c.cancelCtx = context.WithCancelCause(context.Background())
		if !c.deadline.IsZero() {
			c.ctx, c.stopTimer = context.WithDeadline(c.ctx, c.deadline)
		}
		if c.why != nil {
			c.cancelCtx(c.why)
		}
	}
	return c.ctx
}

// cancel ends the context of the call.
func (c *Call) cancel(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.why = why
	if c.cancelCtx != nil {
		c.cancelCtx(why)
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

// newCall returns the record of a request that is admitted.
func (l *loop) newCall(p *Peer, h *header, hd *handler, n int) *Call {
	c := l.freeCalls
	if c == nil {
		c = &Call{l: l}
		c.handleTask, c.replyTask = c.handle, c.sendReply
		c.sending.OnDone, c.receiving.OnDone = c.onSent, c.onReceived
	} else {
		l.freeCalls = c.nextFree
	}
	c.p, c.h, c.hd, c.Length, c.index = p, *h, hd, n, len(p.running)
	if h.timeout != 0 {
		c.deadline = time.Now().Add(time.Duration(h.timeout) * time.Microsecond)
	}
	p.running = append(p.running, c)
	l.inFlight++
	c.charge(n)
	return c
}

// charge counts the bytes of the request or the reply against the limits.
func (c *Call) charge(n int) {
	c.charged += int64(n)
	c.p.bytes += int64(n)
	c.l.bytes += int64(n)
}

// handleRequest runs the handler of a request, or rejects the request.
func (l *loop) handleRequest(p *Peer, h *header, name []byte, m *ucp.ActiveMessage) {
	hd := l.n.handlers.find(h.number, name)
	code := l.admit(p, hd, m.Length)
	l.stats[code].Inc()
	if code != 0 {
		p.reject(h, code, m)
		return
	}
	c := l.newCall(p, h, hd, m.Length)
	here := m.Data != nil || m.Length == 0
	switch {
	case here && hd.Inline:
		c.Data = m.Data
		c.dispatch()
	case !here && hd.OnDemand:
		c.msg = m.Keep()
		c.dispatch()
	default:
		c.buf = slices.Grow(c.buf[:0], m.Length)
		c.Data = c.buf[:m.Length]
		r, err := m.Recv(c.Data, &c.receiving)
		r.Release()
		if r == nil {
			c.onReceived(err)
		}
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
	case len(p.running) >= cfg.PeerCalls, l.inFlight >= cfg.WorkerCalls,
		p.bytes > 0 && p.bytes+int64(n) > cfg.PeerBytes, l.bytes > 0 && l.bytes+int64(n) > cfg.WorkerBytes:
		return CodeBusy
	}
	return 0
}

// maxUnsent limits the messages without data for a peer that are not sent yet. Each uses about 1 KiB of memory.
const maxUnsent = 1024

// reject replies with a code to a request without calling a handler. A peer that does not receive its rejections is
// disconnected.
func (p *Peer) reject(h *header, code Code, m *ucp.ActiveMessage) {
	switch {
	case h.kind == kindOneWay:
	case p.unsent >= maxUnsent:
		p.violate(m)
	default:
		p.notify(&header{kind: kindReply, number: uint16(code), id: h.id})
	}
}

// onReceived is called when the request is complete, or cannot be received.
func (c *Call) onReceived(err error) {
	if err != nil || c.p.gone != nil {
		c.free()
		return
	}
	c.dispatch()
}

// dispatch runs the handler: inline if it is an inline handler, otherwise in a goroutine.
func (c *Call) dispatch() {
	if c.hd.Inline && c.msg == nil {
		if err := c.runHandler(); err != ErrPending {
			c.err = err
			c.sendReply()
		}
		return
	}
	c.l.woken++
	c.l.running.Add(1)
	go c.handleTask()
}

// handle runs the handler in a goroutine.
func (c *Call) handle() {
	l := c.l
	if err := c.runHandler(); err != ErrPending { // otherwise Finish may have ended c
		c.Finish(err)
	}
	l.running.Done()
}

// Finish completes a call if its handler has returned ErrPending, or will: it sends c.Reply, or the code of err. The program must
// call it once: a second Finish panics, or ends another call. Any goroutine may call it, also a handler that runs inline.
// Until then the call counts against the limits.
func (c *Call) Finish(err error) {
	c.err = err
	c.l.startTask(c.replyTask)
}

// runHandler runs the handler, unless the deadline has passed.
func (c *Call) runHandler() error {
	if !c.deadline.IsZero() && time.Now().After(c.deadline) {
		return &Error{Code: CodeDeadline}
	}
	return c.hd.f(c)
}

// sendReply sends the reply.
func (c *Call) sendReply() {
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
		if CodeOf(c.err) == CodeDraining { // from a server that the handler called; this handler has run
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
	c.charge(len(reply))
	r, err := c.p.ep.SendActive(amID, c.hdr[:], reply, &c.sending)
	r.Release()
	if r == nil {
		c.onSent(err)
	}
}

// onSent is called when ucp no longer uses the reply. An error means that the peer is gone.
func (c *Call) onSent(error) {
	c.free()
}

// free ends the call and returns its record.
func (c *Call) free() {
	l, p := c.l, c.p
	last := len(p.running) - 1
	p.running[c.index] = p.running[last]
	p.running[c.index].index = c.index
	p.running = p.running[:last]
	l.inFlight--
	c.charge(-int(c.charged))
	if c.cancelCtx != nil {
		c.cancel(context.Canceled)
		if c.stopTimer != nil {
			c.stopTimer()
		}
	}
	c.Reply, c.buf = reusable(c.Reply), reusable(c.buf)
	c.Data, c.shared, c.err, c.p, c.hd = nil, nil, nil, nil, nil
	c.ctx, c.cancelCtx, c.stopTimer, c.why, c.deadline = nil, nil, nil, nil, time.Time{}
	c.nextFree, l.freeCalls = l.freeCalls, c
	l.checkQuiet()
}

// maxPooledBuf is the largest capacity of a buffer, in bytes, that remains in a free record.
const maxPooledBuf = 16 << 10

func reusable(b []byte) []byte {
	if cap(b) > maxPooledBuf {
		return nil
	}
	return b[:0]
}
