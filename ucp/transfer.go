package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// transfer checks a put or get and makes its request; both results are nil if
// there is nothing to move.
func (e *EP) transfer(kind opKind, buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if err := e.refusal(key); err != nil {
		return nil, err
	}
	if !e.peer.best[wireup.RMA].ok {
		return nil, fmt.Errorf("ucp: put and get: %w\n%s", ucs.ErrUnsupported, e.Explain())
	}
	right := uct.AccessRemoteWrite
	if kind == opGet {
		right = uct.AccessRemoteRead
	}
	if !key.packed.holds(raddr, uint64(len(buf))) || key.packed.access&right == 0 {
		return nil, fmt.Errorf("ucp: %d bytes at %#x: %w", len(buf), raddr, ucs.ErrRemoteAccess)
	}
	var mem *Mem
	if p != nil && p.Mem != nil {
		mem = p.Mem
		if !mem.covers(buf) {
			return nil, fmt.Errorf("ucp: the buffer is not in OpParams.Mem: %w", ucs.ErrInvalidParam)
		}
	}
	if len(buf) == 0 {
		return nil, nil
	}
	r := e.w.newRequest(e, kind)
	r.buf, r.raddr, r.key, r.mem = buf, raddr, key, mem
	return r, nil
}

// start enters the operation and does what can be done now.
func (r *Request) start() (*Request, error) {
	r.ep.list(r)
	r.launch()
	return r.started()
}

// launch posts the operation, or queues it where it has to wait.
func (r *Request) launch() {
	e := r.ep
	if e.aborting != ucs.StatusOK {
		r.settle(e.aborting)
		return
	}
	if r.size != 0 {
		r.classify()
	}
	p, ok := r.purpose()
	held := e.fences > 0 && r.flags&reqAhead == 0 && r.kind != opAnswer
	if ok && (held || e.lane(p) == nil) {
		e.wait(r)
		return
	}
	r.loosen()
	r.proceed()
}

// proceed posts, and queues the operation on its lane when that has no resources.
func (r *Request) proceed() {
	for range retries {
		if r.advance() != uct.ErrNoResource {
			return
		}
		err := r.waitsOn().ep.AddPending(&r.pend)
		if err == nil {
			r.flags |= reqQueued
			return
		}
		if err != uct.ErrBusy {
			r.fail(statusOf(err))
			r.posted()
			return
		}
	}
	r.fail(ucs.StatusNoResource)
	r.posted()
}

// retries bounds a transport that has resources when asked and none when used.
const retries = 1000

// waitsOn is the lane that has no resources for the operation.
func (r *Request) waitsOn() *lane {
	if p, ok := r.purpose(); ok {
		return r.ep.link.use[p]
	}
	return &r.ep.link.lanes[r.lane]
}

// purpose is the kind of lane that the operation takes; ok is false for those that
// take all.
func (r *Request) purpose() (p wireup.Purpose, ok bool) {
	switch r.kind {
	case opPut, opGet:
		return wireup.RMA, true
	case opPost, opFetch, opLoop:
		return wireup.AMO, true
	case opRemote, opAnswer:
		return wireup.AM, true
	}
	return 0, false
}

// advance posts as much as there are resources for. It returns ErrNoResource if
// some is left; then the operation must be queued.
func (r *Request) advance() error {
	var err error
	switch r.kind {
	case opPut, opGet:
		err = r.move()
	case opPost, opFetch:
		err = r.postAtomic()
	case opLoop:
		err = r.postSwap()
	case opRemote:
		err = r.sendRemote()
	case opAnswer:
		err = r.sendAnswer()
	case opFlush, opFence, opClose:
		err = r.flushLanes()
	}
	if err == uct.ErrNoResource {
		return err
	}
	if err != nil {
		r.fail(statusOf(r.ep.reason(err)))
	}
	r.posted()
	return nil
}

// move posts the rest of a put or get.
func (r *Request) move() error {
	l := r.ep.link.use[wireup.RMA]
	key, err := r.key.resolve(l.iface.index, l.remote)
	if err != nil {
		return err
	}
	for r.off < len(r.buf) {
		n, err := 0, error(nil)
		if r.kind == opPut {
			n, err = r.putPiece(l, key)
		} else {
			n, err = r.getPiece(l, key)
		}
		if err != nil {
			return err
		}
		r.off += n
		r.flags |= reqPosted
	}
	return nil
}

// zcopyLen is the length of the next piece to be moved without a copy; 0 if it is
// to be copied.
func (r *Request) zcopyLen(l *lane, limits *uct.OpLimits, can bool) int {
	rest := len(r.buf) - r.off
	needMem := l.iface.domain.attr.NeedMemH
	thresh := l.iface.w.ctx.zcopyThresh(limits)
	if !can || rest < limits.MinZcopy || len(r.buf) < thresh || needMem && (r.mem == nil || r.mem.parts[l.iface.md] == nil) {
		return 0
	}
	return min(rest, limits.MaxZcopy)
}

// zcopyThresh is the length from which registered memory is not copied.
func (c *Context) zcopyThresh(limits *uct.OpLimits) int {
	if c.cfg.ZcopyThresh > 0 {
		return c.cfg.ZcopyThresh
	}
	return limits.MaxBcopy + 1
}

// piece is the scatter list of the next n bytes; it lives in the request.
func (r *Request) piece(l *lane, n int) []uct.IOV {
	r.iov[0].Buf = r.buf[r.off : r.off+n]
	if r.mem != nil {
		r.iov[0].Mem = r.mem.parts[l.iface.md]
	}
	return r.iov[:]
}
