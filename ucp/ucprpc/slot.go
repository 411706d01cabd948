package ucprpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// slot is the record of an operation of a caller: a call, a one-way message, or an access to remote memory. Slots
// are pooled, with everything that an operation needs, so that operations do not allocate.
//
// An operation completes once: when it has a reply or an error, and ucp uses neither its data nor its buffer.
type slot struct {
	waiter
	l         *loop
	sending   ucp.OpParams
	receiving ucp.OpParams
	hdr       [headerLen + maxName]byte
	nextFree  *slot // in loop.free

	// Used by the caller until it submits start, and again when done is set.
	op       slotOp
	p        *Peer
	method   Method
	data     []byte // data to send or put, or destination of a get
	buf      []byte // buffer for the reply
	ctx      context.Context
	deadline time.Time
	msg      *ucp.ActiveMessage
	key      *ucp.RKey
	off      uint64
	reply    []byte
	err      error

	// Used by the driver only.
	id        callID
	active    bool         // the operation is in progress
	over      bool         // reply or err is final
	posted    bool         // ucp has accepted the operation
	abandoned bool         // the context of the caller was done first
	busy      bool         // the driver is in a call for the operation; if the operation fails meanwhile, the driver completes it afterwards
	send      *ucp.Request // uses data, or is the flush of a put; nil if there is none
	recv      *ucp.Request // writes to the buffer; nil if there is none
}

// slotOp is the type of an operation.
type slotOp uint8

const (
	opCall slotOp = iota
	opOneWay
	opGet
	opPut
	opUnpack // makes a key of data
	opRecv   // the data of a request, by its handler
)

// newSlot returns a slot for an operation on the peer. CodeBusy if Limits.MaxCalls slots are in use.
func (p *Peer) newSlot(op slotOp, data []byte) (*slot, error) {
	l := p.l
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.free
	switch {
	case s != nil:
		l.free = s.nextFree
	case l.made == len(l.slots):
		return nil, &Error{Code: CodeBusy, Text: "MaxCalls are in progress"}
	default:
		s = &slot{l: l, id: callID{index: uint32(l.made)}}
		s.init(s.post, s.abandonOp)
		s.sending.OnDone, s.receiving.OnDone = s.onSent, s.onReceived
		l.slots[l.made].Store(s)
		l.made++
	}
	s.op, s.p, s.data, s.done = op, p, data, false
	return s, nil
}

// put returns the slot to its loop.
func (s *slot) put() {
	s.p, s.data, s.buf, s.reply, s.msg, s.key, s.ctx, s.err = nil, nil, nil, nil, nil, nil, nil, nil
	s.l.mu.Lock()
	s.nextFree, s.l.free = s.l.free, s
	s.l.mu.Unlock()
}

// run executes the operation and returns its error.
func (s *slot) run(ctx context.Context) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	s.ctx = ctx
	s.deadline, _ = ctx.Deadline()
	s.l.await(ctx, &s.waiter)
	return s.err
}

// post starts the operation.
func (s *slot) post() {
	s.active, s.over, s.posted, s.abandoned = true, false, false, false
	s.id.generation++
	s.l.active++
	if s.p.gone != nil {
		s.end(&Error{Code: CodeUnavailable, Err: s.p.gone})
		return
	}
	if s.p.draining && (s.op == opCall || s.op == opOneWay) {
		s.end(&Error{Code: CodeDraining})
		return
	}
	s.busy = true // if the EP fails here, OnError calls drop
	var err error
	switch s.op {
	case opCall, opOneWay:
		s.send, err = s.p.ep.SendActive(amID, s.hdr[:s.packHeader()], s.data, &s.sending)
		s.l.pushes = true
	case opGet:
		s.send, err = s.p.ep.Get(s.data, s.key.Addr()+s.off, s.key, &s.sending)
	case opPut:
		s.send, err = s.p.ep.Put(s.data, s.key.Addr()+s.off, s.key, &s.sending)
	case opUnpack:
		s.key, err = s.p.ep.Unpack(s.data)
	case opRecv:
		s.recv, err = s.msg.Recv(s.data, &s.receiving)
	}
	switch {
	case err != nil:
		s.over, s.err = true, &Error{Code: CodeUnavailable, Err: err}
		s.l.dropFailed(s.p, err)
	case s.send == nil:
		s.posted = true
		s.onDataSent()
	default:
		s.posted = true
	}
	s.busy = false
	s.endIfOver()
}

func (s *slot) packHeader() int {
	h := header{kind: kindCall, number: s.method.Number, id: s.id}
	if s.op == opOneWay {
		h.kind = kindOneWay
	}
	if !s.deadline.IsZero() {
		h.timeout = timeoutField(time.Until(s.deadline))
	}
	return h.pack(s.hdr[:], s.method.Name)
}

// onDataSent continues the operation when ucp no longer uses the data.
func (s *slot) onDataSent() {
	switch {
	case s.op == opCall, s.over: // the reply completes a call
		s.endIfOver()
	case s.op == opPut:
		s.flush()
	default:
		s.end(nil)
	}
}

// flush waits until a put is in the memory of the peer.
func (s *slot) flush() {
	r, err := s.p.ep.Flush()
	if r == nil {
		s.end(err)
		return
	}
	s.send = r
	s.l.flushes = append(s.l.flushes, s)
}

// endFlushes completes the puts whose flush is complete: a flush has no callback.
func (l *loop) endFlushes() {
	for i := 0; i < len(l.flushes); {
		s := l.flushes[i]
		if !s.send.Done() {
			i++
			continue
		}
		l.events++
		l.flushes[i] = l.flushes[len(l.flushes)-1]
		l.flushes = l.flushes[:len(l.flushes)-1]
		_, err := s.send.Test()
		s.send = nil
		s.end(err)
	}
}

// onSent is called when ucp no longer uses the data.
func (s *slot) onSent(err error) {
	s.l.events++
	s.send.Release()
	s.send = nil
	if err != nil {
		s.end(err)
		return
	}
	s.busy = true // as in post
	s.onDataSent()
	s.busy = false
	s.endIfOver()
}

// onReceived is called when the reply is complete.
func (s *slot) onReceived(err error) {
	s.l.events++
	s.recv.Release()
	s.recv = nil
	if err != nil && !s.abandoned {
		s.err = &Error{Code: CodeLost, Err: err}
	}
	s.endIfOver()
}

// end sets the result of the operation, an error or nil, unless it has a result.
func (s *slot) end(err error) {
	if !s.active || s.over {
		s.endIfOver()
		return
	}
	s.over, s.err = true, err
	if _, ok := err.(*Error); err != nil && !ok {
		s.err = &Error{Code: CodeFailed, Err: err} // rejected by the target
		if errors.Is(err, ucs.ErrEPFailed) {
			s.err = &Error{Code: CodeLost, Err: err}
			s.l.dropFailed(s.p, err)
		}
	}
	s.endIfOver()
}

// endIfOver completes the operation and wakes the caller if the result is final and ucp no longer uses memory of the
// caller.
func (s *slot) endIfOver() {
	if !s.active || !s.over || s.send != nil || s.recv != nil || s.busy {
		return
	}
	s.active = false
	l := s.l
	l.active--
	l.finish(&s.waiter)
	l.checkQuiet()
}

// abandonOp abandons the operation because the context of the caller is done. It does not wait: the operation completes
// when ucp no longer uses its memory.
func (s *slot) abandonOp() {
	if !s.active || s.abandoned {
		return
	}
	s.abandoned = true
	sendCancel := s.op == opCall && s.posted && !s.over
	if !s.over || s.recv != nil {
		s.over, s.err = true, contextError(s.ctx)
	}
	for i, f := range s.l.flushes {
		if f == s { // the put no longer uses the data
			s.l.flushes = append(s.l.flushes[:i], s.l.flushes[i+1:]...)
			s.send.Release()
			s.send = nil
			break
		}
	}
	s.busy = true
	if s.send.Cancel() { // nothing was sent, so the peer does not know of the call
		sendCancel = false
	}
	s.recv.Cancel()
	if sendCancel && s.p.gone == nil {
		s.p.notify(&header{kind: kindCancel, id: s.id})
	}
	if s.send != nil || s.recv != nil {
		s.limitRevoke()
	}
	s.busy = false
	s.endIfOver()
}

// errInUse is the reason for which a peer that still uses memory of an abandoned operation is disconnected.
var errInUse = fmt.Errorf("the peer uses memory of an abandoned call: %w", ucs.ErrTimedOut)

// limitRevoke disconnects the peer if the abandoned operation is not complete after revokeLimit. It uses several short
// timers, one after the other: while this process is stopped, at most one of them elapses.
func (s *slot) limitRevoke() {
	const checks = 8
	id, l, n := s.id, s.l, 0
	check := &task{}
	wait := func() { time.AfterFunc(l.revokeLimit/checks, func() { l.submit(check) }) }
	check.run = func() {
		switch n++; {
		case !s.active || s.id != id: // the operation is complete
		case n < checks:
			wait()
		default:
			s.p.disconnect(errInUse)
		}
	}
	wait()
}

// handleReply handles a reply that has arrived.
func (l *loop) handleReply(p *Peer, h *header, m *ucp.ActiveMessage) {
	var s *slot
	if int(h.id.index) < len(l.slots) {
		s = l.slots[h.id.index].Load()
	}
	switch {
	case s == nil:
		p.violate(m)
		return
	case !s.active || s.over || s.op != opCall || s.id != h.id || s.p != p || s.recv != nil:
		l.stats[lateReplies].Inc()
		return // the caller has abandoned it
	}
	if h.number != 0 {
		s.end(&Error{Code: Code(h.number), Text: string(m.Data[:min(len(m.Data), maxErrorText)])})
		return
	}
	if m.Length > l.n.cfg.MaxReply {
		s.end(&Error{Code: CodeTooLong, Text: "the reply is longer than MaxReply"})
		return
	}
	if cap(s.buf) < m.Length {
		s.buf = make([]byte, m.Length)
	}
	s.reply = s.buf[:m.Length]
	s.busy = true // as in post
	r, err := m.Recv(s.reply, &s.receiving)
	s.busy = false
	s.over, s.err, s.recv = true, nil, r
	if err != nil {
		s.err = &Error{Code: CodeLost, Err: err}
	}
	s.endIfOver()
}
