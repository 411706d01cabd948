package ucp

import (
	"context"
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// AtomicPost applies op (not compare-and-swap) with value to the word of size
// bytes, 4 or 8, at raddr. It takes effect before the next flush is complete. Errors:
// ErrInvalidParam for a wrong op, size or alignment; otherwise as [EP.Put]. If the
// operation fails later, the flush returns the error.
func (e *EP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key *RKey) error {
	if key != nil && key.ep == e && uint(size) < uint(len(key.post)) && key.post[size].Has(op) && key.opens(raddr, uint64(size)) {
		err := key.amo.AtomicPost(op, size, value, raddr, key.amoKey)
		if err == nil {
			return nil
		}
		if err != uct.ErrNoResource && !e.canReroute(&postStage, err) {
			return e.refused(action{&postStage, op, size}, err)
		}
	}
	return e.postSlow(op, size, value, raddr, key)
}

//go:noinline
func (e *EP) postSlow(op uct.AtomicOp, size int, value, raddr uint64, key *RKey) error {
	if key == nil {
		return e.refusal(action{&postStage, op, size}, key)
	}
	if op >= uct.AtomicCSwap {
		return e.wrong(action{&postStage, op, size}, ucs.ErrInvalidParam, "AtomicPost does not have it")
	}
	r, err := e.newAtomic(&postStage, op, size, raddr, key)
	if err != nil {
		return err
	}
	*recordOf[atomicRecord](r) = atomicRecord{value: value}
	if r, err = r.start(); r != nil {
		r.Release()
	}
	return err
}

// AtomicFetch is AtomicPost, and stores the old value in *result, zero-extended for 4 bytes. result belongs to gucx
// until the request is complete. If the request is nil, the old value is in *result.
func (e *EP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key *RKey) (*Request, error) {
	if key.fetches(e, op, size, raddr) && result != nil && op != uct.AtomicCSwap {
		r := e.w.newDirect()
		r.ep, r.stage = e, &fetchStage
		r.old.result, r.atomic = result, atomicOp{op, uint8(size)}
		pending, err := key.amo.AtomicFetch(op, size, value, &r.old.word, raddr, key.amoKey, &r.comp)
		if err == nil {
			if pending {
				return r.markPending(), nil
			}
			r.recycleCompleted()
			return nil, nil
		}
		if r, busy, err := r.notPending(err); !busy {
			return r, err
		}
	}
	if op >= uct.AtomicCSwap {
		return nil, e.wrong(action{&fetchStage, op, size}, ucs.ErrInvalidParam, "AtomicFetch does not have it")
	}
	return e.fetchSlow(op, size, 0, value, result, raddr, key)
}

// AtomicCSwap stores swap in the word if the word equals compare. It stores the old value in
// *result in both cases, as [EP.AtomicFetch] does.
func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key *RKey) (*Request, error) {
	if key.fetches(e, uct.AtomicCSwap, size, raddr) && result != nil {
		r := e.w.newDirect()
		r.ep, r.stage = e, &fetchStage
		r.old.result, r.atomic = result, atomicOp{uct.AtomicCSwap, uint8(size)}
		pending, err := key.amo.AtomicCSwap(size, compare, swap, &r.old.word, raddr, key.amoKey, &r.comp)
		if err == nil {
			if pending {
				return r.markPending(), nil
			}
			r.recycleCompleted()
			return nil, nil
		}
		if r, busy, err := r.notPending(err); !busy {
			return r, err
		}
	}
	return e.fetchSlow(uct.AtomicCSwap, size, compare, swap, result, raddr, key)
}

// fetchSlow makes a request for an atomic that one call of the transport does not complete.
//
//go:noinline
func (e *EP) fetchSlow(op uct.AtomicOp, size int, compare, value uint64, result *uint64, raddr uint64, key *RKey) (r *Request, err error) {
	if key == nil {
		return nil, e.refusal(action{&fetchStage, op, size}, key)
	}
	if result == nil {
		return nil, e.wrong(action{&fetchStage, op, size}, ucs.ErrInvalidParam, "no place for the result")
	}
	if r, err = e.newAtomic(&fetchStage, op, size, raddr, key); err != nil {
		return nil, err
	}
	*recordOf[atomicRecord](r) = atomicRecord{value: value, compare: compare}
	r.old.result = result
	return r.start()
}

// atomicRecord is the state of an atomic with a request.
type atomicRecord struct {
	value   uint64 // the operand
	compare uint64 // the compare operand of compare-and-swap
	seen    uint64 // the last known value of the word, for an atomic that repeats compare-and-swap
}

// wordText returns why no atomic of size bytes is possible at raddr.
func wordText(size int, raddr uint64) string {
	if size != 4 && size != 8 {
		return "a word has 4 or 8 bytes"
	}
	return fmt.Sprintf("address %#x is not a multiple of %d", raddr, size)
}

// newAtomic checks an atomic and makes its request.
func (e *EP) newAtomic(s *stage, op uct.AtomicOp, size int, raddr uint64, key *RKey) (*Request, error) {
	a := action{s, op, size}
	if err := e.refusal(a, key); err != nil {
		return nil, err
	}
	if size != 4 && size != 8 || raddr%uint64(size) != 0 {
		return nil, e.wrong(a, ucs.ErrInvalidParam, wordText(size, raddr))
	}
	if why := key.denies(raddr, size, uct.AccessRemoteAtomic); why != "" {
		return nil, e.wrong(a, ucs.ErrRemoteAccess, why)
	}
	if why := e.lostRoleErr(wireup.AMO); why != nil {
		return nil, e.errorOf(a, why)
	}
	if !e.peer.Best[wireup.AMO].OK {
		if !e.peer.Best[wireup.AM].OK {
			return nil, e.wrong(a, ucs.ErrUnsupported, e.w.unreachable(wireup.AMO, e.peer.Addr))
		}
		s = &remoteStage
	}
	r := e.w.newRequest(e, s)
	r.atomic, r.target = atomicOp{op, uint8(size)}, peerRange{key, raddr}
	return r, nil
}

// Stages of atomics. An atomic starts with one of the first three. choosePost and chooseFetch
// select the stage that the lane supports.
var (
	postStage   stage // without result, executed by the transport
	fetchStage  stage // with result, executed by the transport
	remoteStage stage // executed by the target

	swapWords  swapLoop // by compare-and-swap, repeated until it succeeds
	swapHalves swapLoop // the same for a 4-byte word, on the 8 bytes that contain it
)

// swapLoop is the stages of an atomic that repeats compare-and-swap.
type swapLoop struct {
	read stage // compares with 0 and stores 0, which reads the word
	swap stage // replaces the value seen last by the result of the operation
	wide bool  // on the 8 bytes that contain a 4-byte word
}

func init() { // the stages refer to functions that refer to the stages
	atomic := stage{class: &keyClass, name: "atomic", sized: true, opped: true, role: wireup.AMO, tryCancel: unposted}
	postStage, fetchStage, remoteStage = atomic, atomic, atomic
	postStage.choose, postStage.post = choosePost, (*Request).postAtomic
	fetchStage.choose, fetchStage.post = chooseFetch, (*Request).fetchAtomic
	remoteStage.role, remoteStage.post, remoteStage.steps = wireup.AM, (*Request).sendRemote, true
	atomic.steps = true
	swapHalves.wide = true
	swapWords.init(atomic)
	swapHalves.init(atomic)
}

// init makes the stages from the common stage of atomics.
func (s *swapLoop) init(atomic stage) {
	s.read, s.swap = atomic, atomic
	s.read.post = func(r *Request) error {
		recordOf[atomicRecord](r).seen = 0
		return s.post(r, 0)
	}
	s.swap.post = func(r *Request) error { return s.post(r, s.applied(r, recordOf[atomicRecord](r).seen)) }
	s.read.done = func(r *Request) { s.found(r, false) }
	s.swap.done = func(r *Request) { s.found(r, r.old.word == recordOf[atomicRecord](r).seen) }
}

// choosePost selects the stage of an atomic without result.
func choosePost(r *Request) {
	a := &r.ep.lane(wireup.AMO).Iface.attr.Atomic
	post := a.Post64
	if r.atomic.size == 4 {
		post = a.Post32
	}
	if !post.Has(r.atomic.op) {
		chooseFetch(r)
	}
}

// chooseFetch selects the stage of an atomic with result, or of one that the transport only has
// with a result.
func chooseFetch(r *Request) {
	a := &r.ep.lane(wireup.AMO).Iface.attr.Atomic
	fetch := a.Fetch64
	if r.atomic.size == 4 {
		fetch = a.Fetch32
	}
	switch {
	case fetch.Has(r.atomic.op):
		r.stage = &fetchStage
	case fetch.Has(uct.AtomicCSwap):
		r.stage = &swapWords.read
	case r.atomic.size == 4 && a.Fetch64.Has(uct.AtomicCSwap) && r.target.key.packed.Contains(r.target.addr&^7, 8):
		r.stage = &swapHalves.read
	default:
		r.stage = &remoteStage
	}
}

// atomicLane returns the lane of atomics and its key.
func (r *Request) atomicLane() (*lane, uct.RKey, error) {
	l := r.ep.link.lanes.Use[wireup.AMO]
	key, err := r.target.key.resolve(l.Iface.index, l.Remote)
	return l, key, err
}

// postAtomic posts an operation without result over the transport.
func (r *Request) postAtomic() error {
	l, key, err := r.atomicLane()
	if err != nil {
		return err
	}
	return l.AMO.AtomicPost(r.atomic.op, int(r.atomic.size), recordOf[atomicRecord](r).value, r.target.addr, key)
}

// fetchAtomic posts an operation with result over the transport.
func (r *Request) fetchAtomic() error {
	l, key, err := r.atomicLane()
	if err != nil {
		return err
	}
	r.comp.Count++
	a := recordOf[atomicRecord](r)
	if r.atomic.op == uct.AtomicCSwap {
		return r.recordPost(l.AMO.AtomicCSwap(int(r.atomic.size), a.compare, a.value, &r.old.word, r.target.addr, key, &r.comp))
	}
	return r.recordPost(l.AMO.AtomicFetch(r.atomic.op, int(r.atomic.size), a.value, &r.old.word, r.target.addr, key, &r.comp))
}

// post posts the compare-and-swap that replaces the value seen last by swap.
func (s *swapLoop) post(r *Request, swap uint64) error {
	l, key, err := r.atomicLane()
	if err != nil {
		return err
	}
	addr, size := r.target.addr, int(r.atomic.size)
	if s.wide {
		addr, size = addr&^7, 8
	}
	r.comp.Count++
	return r.recordPost(l.AMO.AtomicCSwap(size, recordOf[atomicRecord](r).seen, swap, &r.old.word, addr, key, &r.comp))
}

// found processes the value that a round has returned: it completes the operation or starts the
// next round.
func (s *swapLoop) found(r *Request, swapped bool) {
	found := r.old.word
	switch {
	case r.comp.Status != ucs.StatusOK || r.flags&reqDone != 0:
		r.complete(r.comp.Status)
		return
	case swapped || s.applied(r, found) == found: // the operation changes nothing: the read was enough
		if s.wide {
			r.old.word = uint64(uint32(found >> r.shift()))
		}
		r.complete(ucs.StatusOK)
		return
	}
	recordOf[atomicRecord](r).seen, r.stage = found, &s.swap
	r.comp.Count, r.comp.Status = 1, ucs.StatusOK
	if st := r.stopped(); st != ucs.StatusOK {
		r.complete(st)
		return
	}
	if r.stage.lacksLane(r.ep) { // the role has no lane now
		r.requeue()
		return
	}
	r.proceed()
}

// applied returns the result of the operation on old, which is the word or the 8 bytes that contain
// it.
func (s *swapLoop) applied(r *Request, old uint64) uint64 {
	a := recordOf[atomicRecord](r)
	if !s.wide {
		return r.atomic.op.Apply(int(r.atomic.size), old, a.compare, a.value)
	}
	at := r.shift()
	return old&^(0xffffffff<<at) | r.atomic.op.Apply(4, old>>at&0xffffffff, a.compare, a.value)<<at
}

// shift returns the position of a 4-byte word in the 8 bytes that contain it, in bits.
func (r *Request) shift() uint { return uint(r.target.addr&4) * 8 }

// AtomicFetchWait is [EP.AtomicFetch], and returns the old value, zero-extended for 4 bytes. It makes
// progress. If ctx is done first, it returns the error of ctx: the operation takes effect or not, and old is
// undefined. Other errors: as AtomicFetch.
func (e *EP) AtomicFetchWait(ctx context.Context, op uct.AtomicOp, size int, value, raddr uint64, key *RKey) (old uint64, err error) {
	if err := e.w.beginBlocking(); err != nil {
		return 0, err
	}
	result := &e.w.rma.scratch
	r, err := e.AtomicFetch(op, size, value, result, raddr, key)
	err = e.w.finishBlocking(ctx, r, err)
	return *result, err
}

// AtomicCSwapWait is [EP.AtomicCSwap], and returns the old value. If it equals compare, the word is now swap;
// otherwise the word is unchanged. If ctx is done first: as [EP.AtomicFetchWait].
func (e *EP) AtomicCSwapWait(ctx context.Context, size int, compare, swap, raddr uint64, key *RKey) (old uint64, err error) {
	if err := e.w.beginBlocking(); err != nil {
		return 0, err
	}
	result := &e.w.rma.scratch
	r, err := e.AtomicCSwap(size, compare, swap, result, raddr, key)
	err = e.w.finishBlocking(ctx, r, err)
	return *result, err
}
