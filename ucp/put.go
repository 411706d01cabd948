package ucp

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Put writes buf to raddr at the peer, in the region of key. A nil request says
// that buf is the caller's again; the data is at the peer after a flush. buf may
// have any length. Errors: as [EP.Err]; ErrInvalidRKey for a key of another EP;
// ErrRemoteAccess outside the region or without the right, which refuses the
// operation, or, if only the target finds out, fails the EP; ErrUnsupported if no
// transport of both sides can put and get.
func (e *EP) Put(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if len(buf) <= key.maxShort && key.ep == e {
		err := key.put.PutShort(buf, raddr, key.rma)
		if err == nil {
			return nil, nil
		}
		if err != uct.ErrNoResource {
			return nil, e.refused("put", err)
		}
	}
	return e.putSlow(buf, raddr, key, p)
}

// refused is the error of an operation that a transport did not take. If the reason
// is that the lane is broken, the EP fails now: the caller may not make progress.
//
//go:noinline
func (e *EP) refused(op string, err error) error {
	if e.state == epOpen && errors.Is(err, uct.ErrEPFailed) {
		err = e.reason(err)
		e.fail(statusOf(err), err)
	}
	if e.state == epFailed {
		return e.err
	}
	return fmt.Errorf("ucp: %s: %w", op, err)
}

// putSlow puts what does not go with one short put: by one copy into a buffer of the
// transport if that will do, and by a request otherwise.
//
//go:noinline
func (e *EP) putSlow(buf []byte, raddr uint64, key *RKey, p *OpParams) (*Request, error) {
	if len(buf) <= key.maxPut && key.ep == e && p.permits(buf) {
		k := &e.w.pack
		k.src = buf
		_, err := key.put.PutBcopy(k, raddr, key.rma)
		k.src = nil
		if err == nil {
			return nil, nil
		}
		if err != uct.ErrNoResource {
			return nil, e.refused("put", err)
		}
	}
	if e.w.lateKeys && key.bindLate(wireup.RMA) {
		r, err := e.Put(buf, raddr, key, p)
		key.unbind()
		return r, err
	}
	r, err := e.transfer(opPut, buf, raddr, key, p)
	if r == nil || err != nil {
		return nil, err
	}
	return r.start()
}

// permits reports that there is nothing to check about the local buffer, or that it
// is right.
func (p *OpParams) permits(buf []byte) bool {
	return p == nil || p.Mem == nil || p.Mem.covers(buf)
}

// direct returns what an operation gives to its caller that was posted in one call,
// or was refused; busy says that it must be queued instead. The request, which was
// given to the transport, is the operation's.
func (r *Request) direct(op string, pending bool, err error) (_ *Request, busy bool, _ error) {
	e := r.ep
	if err == nil && pending {
		r.flags |= reqPosted
		e.list(r)
		return r, false, nil
	}
	r.flags |= reqReleased
	if err == nil {
		r.settle(ucs.StatusOK)
		return nil, false, nil
	}
	r.freeFragments()
	r.worker.recycle(r)
	if err == uct.ErrNoResource {
		return nil, true, nil
	}
	return nil, false, e.refused(op, err)
}

// putPiece posts the next piece by the variant that suits what is left.
func (r *Request) putPiece(l *lane, key uct.RKey) (int, error) {
	rest := r.buf[r.off:]
	raddr := r.raddr + uint64(r.off)
	caps, limits := l.iface.attr.Caps, &l.iface.attr.Put
	if len(rest) <= limits.MaxShort && caps.Has(uct.CapPutShort) {
		return len(rest), l.put.PutShort(rest, raddr, key)
	}
	if n := r.zcopyLen(l, limits, caps.Has(uct.CapPutZcopy)); n > 0 {
		r.comp.Count++
		pending, err := l.put.PutZcopy(r.piece(l, n), raddr, key, &r.comp)
		if !pending {
			r.comp.Count--
		}
		return n, err
	}
	p := &r.worker.pack
	p.src = rest
	n, err := l.put.PutBcopy(p, raddr, key)
	p.src = nil
	return n, err
}

// slicePacker packs what fits of a slice.
type slicePacker struct{ src []byte }

// Pack copies the beginning of the slice.
func (p *slicePacker) Pack(dst []byte) int { return copy(dst, p.src) }
