package ucp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// AtomicPost applies op (not compare-and-swap) with value to the word of size
// bytes, 4 or 8, at raddr. It takes effect before the next flush ends. Errors:
// ErrInvalidParam for a wrong op, size or alignment; otherwise as [EP.Put]. If the
// operation fails later, flush tells.
func (e *EP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key *RKey) error {
	if key.ep == e && (size == 4 || size == 8) && key.post[size>>3].Has(op) {
		err := key.amo.AtomicPost(op, size, value, raddr, key.amoKey)
		if err == nil {
			return nil
		}
		if err != uct.ErrNoResource {
			return e.refused("atomic", err)
		}
	}
	return e.postSlow(op, size, value, raddr, key)
}

//go:noinline
func (e *EP) postSlow(op uct.AtomicOp, size int, value, raddr uint64, key *RKey) error {
	if op >= uct.AtomicCSwap {
		return fmt.Errorf("ucp: post %v: %w", op, ucs.ErrInvalidParam)
	}
	if e.w.lateKeys && key.bindLate(wireup.AMO) {
		err := e.AtomicPost(op, size, value, raddr, key)
		key.unbind()
		return err
	}
	r, err := e.newAtomic(opPost, op, size, raddr, key)
	if err != nil {
		return err
	}
	r.value = value
	if r, err = r.start(); r != nil {
		r.Release()
	}
	return err
}

// AtomicFetch is AtomicPost that stores the old value in *result, zero-extended
// for 4 bytes, when the request ends; result is gucx's until then. A nil request
// says that it is there.
func (e *EP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key *RKey) (*Request, error) {
	if key.fetches(e, op, size, raddr) && result != nil && op != uct.AtomicCSwap {
		r := e.w.newRequest(e, opFetch)
		r.result = result
		pending, err := key.amo.AtomicFetch(op, size, value, &r.word, raddr, key.amoKey, &r.comp)
		if r, busy, err := r.direct("atomic", pending, err); !busy {
			return r, err
		}
	}
	if op >= uct.AtomicCSwap || result == nil {
		return nil, fmt.Errorf("ucp: fetch and %v: %w", op, ucs.ErrInvalidParam)
	}
	if e.w.lateKeys && key.bindLate(wireup.AMO) {
		r, err := e.AtomicFetch(op, size, value, result, raddr, key)
		key.unbind()
		return r, err
	}
	r, err := e.newAtomic(opFetch, op, size, raddr, key)
	if err != nil {
		return nil, err
	}
	r.value, r.result = value, result
	return r.start()
}

// AtomicCSwap stores swap in the word if it equals compare. The old value goes to
// *result in both cases, as in [EP.AtomicFetch].
func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key *RKey) (*Request, error) {
	if key.fetches(e, uct.AtomicCSwap, size, raddr) && result != nil {
		r := e.w.newRequest(e, opFetch)
		r.result = result
		pending, err := key.amo.AtomicCSwap(size, compare, swap, &r.word, raddr, key.amoKey, &r.comp)
		if r, busy, err := r.direct("atomic", pending, err); !busy {
			return r, err
		}
	}
	if result == nil {
		return nil, fmt.Errorf("ucp: compare and swap: %w", ucs.ErrInvalidParam)
	}
	if e.w.lateKeys && key.bindLate(wireup.AMO) {
		r, err := e.AtomicCSwap(size, compare, swap, result, raddr, key)
		key.unbind()
		return r, err
	}
	r, err := e.newAtomic(opFetch, uct.AtomicCSwap, size, raddr, key)
	if err != nil {
		return nil, err
	}
	r.compare, r.value, r.result = compare, swap, result
	return r.start()
}

// fetches reports that the lane has the fetching operation and that it can be
// posted at once.
func (k *RKey) fetches(e *EP, op uct.AtomicOp, size int, raddr uint64) bool {
	return k.ep == e && (size == 4 || size == 8) && k.fetch[size>>3].Has(op) &&
		raddr%uint64(size) == 0 && k.packed.holds(raddr, uint64(size))
}

// newAtomic checks an atomic and makes its request.
func (e *EP) newAtomic(kind opKind, op uct.AtomicOp, size int, raddr uint64, key *RKey) (*Request, error) {
	if err := e.refusal(key); err != nil {
		return nil, err
	}
	if size != 4 && size != 8 || raddr%uint64(size) != 0 {
		return nil, fmt.Errorf("ucp: atomic on %d bytes at %#x: %w", size, raddr, ucs.ErrInvalidParam)
	}
	if !key.packed.holds(raddr, uint64(size)) || key.packed.access&uct.AccessRemoteAtomic == 0 {
		return nil, fmt.Errorf("ucp: atomic on %d bytes at %#x: %w", size, raddr, ucs.ErrRemoteAccess)
	}
	if !e.peer.best[wireup.AMO].ok {
		if !e.peer.best[wireup.AM].ok {
			return nil, fmt.Errorf("ucp: atomics: %w\n%s", ucs.ErrUnsupported, e.Explain())
		}
		kind = opRemote
	}
	r := e.w.newRequest(e, kind)
	r.op, r.size, r.raddr, r.key = op, uint8(size), raddr, key
	return r, nil
}

// classify chooses how an atomic is done, once its lane is known.
func (r *Request) classify() {
	l := r.ep.lane(wireup.AMO)
	if l == nil || r.kind != opPost && r.kind != opFetch {
		return
	}
	a := &l.iface.attr.Atomic
	post, fetch := a.Post64, a.Fetch64
	if r.size == 4 {
		post, fetch = a.Post32, a.Fetch32
	}
	switch {
	case r.kind == opPost && post.Has(r.op):
	case fetch.Has(r.op):
		r.kind = opFetch
	case fetch.Has(uct.AtomicCSwap):
		r.kind = opLoop
	case r.size == 4 && a.Fetch64.Has(uct.AtomicCSwap) && r.key.packed.holds(r.raddr&^7, 8):
		r.kind = opLoop
		r.flags |= reqWide
	default:
		r.kind = opRemote
	}
	r.expect = 0
}

// postAtomic posts an operation that the transport has.
func (r *Request) postAtomic() error {
	l := r.ep.link.use[wireup.AMO]
	key, err := r.key.resolve(l.iface.index, l.remote)
	if err != nil {
		return err
	}
	if r.kind == opPost {
		return l.amo.AtomicPost(r.op, int(r.size), r.value, r.raddr, key)
	}
	r.comp.Count++
	var pending bool
	if r.op == uct.AtomicCSwap {
		pending, err = l.amo.AtomicCSwap(int(r.size), r.compare, r.value, &r.word, r.raddr, key, &r.comp)
	} else {
		pending, err = l.amo.AtomicFetch(r.op, int(r.size), r.value, &r.word, r.raddr, key, &r.comp)
	}
	if !pending {
		r.comp.Count--
	}
	if err == nil {
		r.flags |= reqPosted
	}
	return err
}

// postSwap posts one round of a loop: the first swaps 0 for 0, which reads the
// word, the others the value that the operation makes of the last one seen.
func (r *Request) postSwap() error {
	l := r.ep.link.use[wireup.AMO]
	key, err := r.key.resolve(l.iface.index, l.remote)
	if err != nil {
		return err
	}
	swap := uint64(0)
	if r.flags&reqRead != 0 {
		swap = r.applied(r.expect)
	}
	addr, size := r.raddr, int(r.size)
	if r.flags&reqWide != 0 {
		addr, size = addr&^7, 8
	}
	r.comp.Count++
	pending, err := l.amo.AtomicCSwap(size, r.expect, swap, &r.word, addr, key, &r.comp)
	if !pending {
		r.comp.Count--
	}
	if err == nil {
		r.flags |= reqPosted
	}
	return err
}

// loopStep looks at what a round found, and ends the loop or goes on.
func (r *Request) loopStep() {
	seen := r.word
	swapped := r.flags&reqRead != 0 && seen == r.expect
	if swapped || r.applied(seen) == seen { // nothing to change is done by looking
		if r.flags&reqWide != 0 {
			r.word = uint64(uint32(seen >> r.shift()))
		}
		r.settle(ucs.StatusOK)
		return
	}
	r.flags |= reqRead
	r.expect = seen
	r.comp.Count, r.comp.Status = 1, ucs.StatusOK
	if st := r.ep.aborting; st != ucs.StatusOK {
		r.settle(st)
		return
	}
	r.proceed()
}

// applied is the word, or the 8 bytes around it, after the operation on old.
func (r *Request) applied(old uint64) uint64 {
	if r.flags&reqWide == 0 {
		return r.op.Apply(int(r.size), old, r.compare, r.value)
	}
	s := r.shift()
	return old&^(0xffffffff<<s) | r.op.Apply(4, old>>s&0xffffffff, r.compare, r.value)<<s
}

// shift is where a 4-byte word lies in the 8 bytes around it.
func (r *Request) shift() uint { return uint(r.raddr&4) * 8 }
