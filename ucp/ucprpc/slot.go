package ucprpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// operation is a call, a one-way message, an access to remote memory, or a receive of the data of a request.
type operation struct {
	op     opType
	method Method
	data   []byte // to send or put, or destination of a get or receive
	buf    []byte // buffer for the reply
	key    *ucp.RKey
	off    uint64
	msg    *ucp.ActiveMessage

	// If no goroutine waits for the operation, the driver calls one of these when it completes.
	onReply func(reply []byte, err error)
	onDone  func(err error)
}

type opType uint8

const (
	opCall opType = iota
	opOneWay
	opGet
	opPut
	opRecv // the data of a request, by its handler
)

// slot is the record of an operation. Slots are pooled, with everything that an operation needs, so that operations do
// not allocate.
//
// An operation completes once: when it has a reply or an error, and ucp uses neither its data nor its buffer.
type slot struct {
	waiter
	l         *loop
	sending   ucp.OpParams
	receiving ucp.OpParams
	hdr       [headerLen + maxName]byte
	nextFree  *slot // in loop.free

	// Used by the caller until it submits the operation, and again when done is set.
	operation
	p     *Peer
	ctx   context.Context
	reply []byte
	err   error

	// Used by the driver only.
	id        callID
	listed    bool         // id.index is the index in loop.slots
	active    bool         // the operation is in progress
	hasResult bool         // reply or err is final
	abandoned bool         // the context of the caller was done first
	send      *ucp.Request // uses data, or is the flush of a put; nil if there is none
	recv      *ucp.Request // writes the reply; nil if there is none
}

// execute executes an operation on the peer. CodeBusy if Limits.MaxCalls operations are in progress, CodeTooLong for the
// name of a method.
func (p *Peer) execute(ctx context.Context, o operation) (reply []byte, err error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	s, err := p.newSlot(ctx, o)
	if err != nil {
		return nil, err
	}
	p.l.await(ctx, &s.waiter)
	return s.put()
}

// startOperation starts an operation with onReply or onDone. Errors: as of execute.
func (p *Peer) startOperation(o operation) error {
	s, err := p.newSlot(context.Background(), o)
	if err == nil {
		p.l.startTask(s.begin)
	}
	return err
}

// newSlot returns a slot for an operation. Errors: as of execute.
func (p *Peer) newSlot(ctx context.Context, o operation) (*slot, error) {
	if len(o.method.Name) > maxName {
		return nil, &Error{Code: CodeTooLong, Text: "name of a method"}
	}
	s := p.l.freeSlot()
	if s == nil {
		return nil, &Error{Code: CodeBusy, Text: "MaxCalls are in progress"}
	}
	s.operation, s.p, s.ctx, s.done = o, p, ctx, false
	return s, nil
}

// put frees the slot and returns the result of the operation.
func (s *slot) put() (reply []byte, err error) {
	if err = s.err; err == nil {
		reply = s.reply
	}
	s.operation, s.p, s.ctx, s.reply, s.err = operation{}, nil, nil, nil, nil
	s.l.mu.Lock()
	s.nextFree, s.l.free = s.l.free, s
	s.l.mu.Unlock()
	return reply, err
}

// freeSlot returns a slot that is not in use; nil if Limits.MaxCalls are.
func (l *loop) freeSlot() *slot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.free
	switch {
	case s != nil:
		l.free = s.nextFree
	case l.made < l.n.cfg.MaxCalls:
		l.made++
		s = &slot{l: l}
		s.waiter = newWaiter(s.post, func() {
			if s.active { // otherwise the caller may have freed the slot
				s.abandon(contextError(s.ctx))
			}
		})
		s.sending.OnDone, s.receiving.OnDone = s.onSent, s.onReceived
	}
	return s
}

// post starts the operation.
func (s *slot) post() {
	if !s.listed {
		s.listed, s.id.index = true, uint32(len(s.l.slots))
		s.l.slots = append(s.l.slots, s)
	}
	s.active, s.hasResult, s.abandoned = true, false, false
	s.id.generation++
	s.l.active++
	var err error
	switch {
	case s.p.gone != nil:
		err = s.p.gone
	case s.p.draining && s.op != opRecv:
		s.setResult(errDraining)
		return
	case s.op == opGet:
		s.send, err = s.p.ep.Get(s.data, s.key.Addr()+s.off, s.key, &s.sending)
	case s.op == opPut:
		s.send, err = s.p.ep.Put(s.data, s.key.Addr()+s.off, s.key, &s.sending)
	case s.op == opRecv:
		s.send, err = s.msg.Recv(s.data, &s.sending)
	default:
		s.send, err = s.p.ep.SendActive(amID, s.hdr[:s.packHeader()], s.data, &s.sending)
	}
	if err != nil {
		err = &Error{Code: CodeUnavailable, Err: err}
	}
	if s.send == nil {
		s.onSent(err)
	}
}

func (s *slot) packHeader() int {
	h := header{kind: kindCall, number: s.method.Number, id: s.id}
	if s.op == opOneWay {
		h.kind = kindOneWay
	}
	if deadline, ok := s.ctx.Deadline(); ok {
		h.timeout = timeoutField(time.Until(deadline))
	}
	return h.pack(s.hdr[:], s.method.Name)
}

// onSent is called when ucp no longer uses the data.
func (s *slot) onSent(err error) {
	s.send.Release()
	s.send = nil
	switch {
	case err == nil && s.op == opCall: // the reply completes it
		s.completeIfReady()
	case err == nil && s.op == opPut && !s.hasResult: // a flush completes it
		if s.send, err = s.p.ep.Flush(); s.send != nil {
			s.l.flushes = append(s.l.flushes, s)
			return
		}
		s.setResult(err)
	default:
		s.setResult(err)
	}
}

// completeFlushes completes the puts whose flush is complete: a flush has no callback.
func (l *loop) completeFlushes() {
	l.flushes = slices.DeleteFunc(l.flushes, func(s *slot) bool {
		if !s.send.Done() {
			return false
		}
		_, err := s.send.Test()
		s.send = nil
		s.setResult(err)
		return true
	})
}

// onReceived is called when the reply is complete.
func (s *slot) onReceived(err error) {
	s.recv.Release()
	s.recv = nil
	if err != nil {
		err = &Error{Code: CodeLost, Err: err}
	}
	s.setResult(err)
}

// setResult sets the result of the operation, an error or nil, unless it has a result.
func (s *slot) setResult(err error) {
	if s.active && !s.hasResult {
		s.hasResult, s.err = true, err
		failed := errors.Is(err, ucs.ErrEPFailed)
		if _, ok := err.(*Error); err != nil && !ok {
			code := CodeFailed // rejected by the target
			if failed || s.op == opRecv {
				code = CodeLost
			}
			s.err = &Error{Code: code, Err: err}
		}
		if failed { // OnError may be called only later
			s.l.dropPeer(s.p, err)
		}
	}
	s.completeIfReady()
}

// completeIfReady completes the operation if the result is final and ucp no longer uses memory of the caller: it wakes the
// caller, or calls the function of the program.
func (s *slot) completeIfReady() {
	if !s.active || !s.hasResult || s.send != nil || s.recv != nil {
		return
	}
	s.active = false
	s.l.active--
	l, onReply, onDone := s.l, s.onReply, s.onDone
	switch {
	case onReply != nil:
		onReply(s.put())
	case onDone != nil:
		_, err := s.put()
		onDone(err)
	default:
		l.completeWait(&s.waiter)
	}
	l.checkQuiet()
}

// abandon abandons the operation, with err as the reason, because the context of the caller is done or the loop closes. It does
// not wait: the operation completes when ucp no longer uses its memory.
func (s *slot) abandon(err error) {
	if !s.active || s.abandoned {
		return
	}
	s.abandoned = true
	sendCancel := s.op == opCall && !s.hasResult && s.recv == nil
	if !s.hasResult {
		s.hasResult, s.err = true, err
	}
	if i := slices.Index(s.l.flushes, s); i >= 0 { // the put no longer uses the data
		s.l.flushes = slices.Delete(s.l.flushes, i, i+1)
		s.send.Release()
		s.send = nil
	}
	if s.send.Cancel() { // nothing was sent, so the peer does not know of the call
		sendCancel = false
	}
	s.recv.Cancel()
	if sendCancel && s.p.gone == nil {
		s.p.notify(&header{kind: kindCancel, id: s.id})
	}
	if s.send != nil || s.recv != nil {
		s.limitRevoke(revokeChecks)
	}
	s.completeIfReady()
}

// errInUse is the reason for which a peer that still uses memory of an abandoned operation is disconnected.
var errInUse = fmt.Errorf("the peer uses memory of an abandoned call: %w", ucs.ErrTimedOut)

// revokeChecks is the number of short timers that limitRevoke uses, one after the other, instead of one long timer: while this
// process is stopped, at most one of them elapses.
const revokeChecks = 8

// limitRevoke disconnects the peer if the abandoned operation is not complete after the given number of checks.
func (s *slot) limitRevoke(checks int) {
	id := s.id
	check := func() {
		switch {
		case !s.active || s.id != id: // the operation is complete
		case checks > 1:
			s.limitRevoke(checks - 1)
		default:
			s.p.disconnect(errInUse)
		}
	}
	time.AfterFunc(s.l.revokeLimit/revokeChecks, func() { s.l.submit(check) })
}

// handleReply handles a reply that has arrived.
func (l *loop) handleReply(p *Peer, h *header, m *ucp.ActiveMessage) {
	if int(h.id.index) >= len(l.slots) {
		p.violate(m)
		return
	}
	s := l.slots[h.id.index]
	switch {
	case !s.active || s.hasResult || s.op != opCall || s.id != h.id || s.p != p || s.recv != nil:
		l.stats[lateReplies].Inc() // the caller has abandoned it
	case h.number != 0:
		if Code(h.number) == CodeDraining {
			p.markDraining()
		}
		s.setResult(&Error{Code: Code(h.number), Text: string(m.Data[:min(len(m.Data), maxErrorText)])})
	case m.Length > l.n.cfg.MaxReply:
		s.setResult(&Error{Code: CodeTooLong, Text: "the reply is longer than MaxReply"})
	default:
		if cap(s.buf) < m.Length {
			s.buf = make([]byte, m.Length)
		}
		s.reply = s.buf[:m.Length]
		var err error
		if s.recv, err = m.Recv(s.reply, &s.receiving); s.recv == nil {
			s.onReceived(err)
		}
	}
}
