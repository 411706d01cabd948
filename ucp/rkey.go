package ucp

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// RKey is a remote key, bound to one EP: to the lanes that its operations take, to
// the transport's form of the key and to the limits that decide how data moves. An
// operation looks nothing up. While the EP has no lane, and while a fence holds
// operations back, it is bound to nothing and operations wait.
type RKey struct {
	put      uct.Putter
	rma      uct.RKey
	ep       *EP // nil after Close
	maxShort int // longest put that goes by PutShort; -1 while unbound

	maxPut int // longest put that goes by one PutBcopy; -1 while unbound
	maxGet int // longest get that goes by one GetBcopy; -1 while unbound
	get    uct.Getter

	amo    uct.Atomics
	amoKey uct.RKey
	post   [2]uct.AtomicOps // that go directly, by size 4 and 8
	fetch  [2]uct.AtomicOps

	packed     *packedKey
	parts      []unpackedPart
	next, prev *RKey // in EP.keys
}

// unpackedPart is the key of one memory domain of the target, unpacked by one of
// ours.
type unpackedPart struct {
	local, remote int
	key           uct.RKey
}

// Unpack binds a remote key, which may come from a stranger, to the EP. packed is
// copied. Close it after the last operation with it has ended. Errors:
// ErrInvalidRKey; as Err if the EP takes no operations.
func (e *EP) Unpack(packed []byte) (*RKey, error) {
	if err := e.refusal(nil); err != nil {
		return nil, err
	}
	k := &RKey{ep: e}
	k.unbind()
	var err error
	if k.packed, err = unpackKey(packed); err != nil {
		return nil, err
	}
	for _, p := range []wireup.Purpose{wireup.RMA, wireup.AMO} {
		if best := e.peer.best[p]; best.ok {
			if _, err := k.resolve(best.local, best.remote); err != nil {
				k.release()
				return nil, err
			}
		}
	}
	e.adopted = false
	k.next = e.keys
	if e.keys != nil {
		e.keys.prev = k
	}
	e.keys = k
	k.bind()
	return k, nil
}

// resolve returns the key for a pair of resources, unpacking it once.
func (k *RKey) resolve(local, remote int) (uct.RKey, error) {
	e := k.ep
	lmd := e.w.ifaces[local].md
	rmd := int(e.peer.addr.Resources[remote].MD)
	for i := range k.parts {
		if p := &k.parts[i]; p.local == lmd && p.remote == rmd {
			return p.key, nil
		}
	}
	d := e.w.ifaces[local].domain
	var key uct.RKey
	if d.keys != nil {
		part := k.packed.find(rmd)
		if part == nil {
			return key, badKey("the memory was not registered with the domain of %s of that worker when the key was packed", e.w.ifaces[local].attr.Resource.Transport)
		}
		var err error
		if key, err = d.keys.UnpackRKey(part); err != nil {
			return key, fmt.Errorf("ucp: unpack key: %w", err)
		}
	}
	k.parts = append(k.parts, unpackedPart{lmd, rmd, key})
	return key, nil
}

// bind points the key at the lanes of its EP; what has none stays unbound. Keys that
// are resolved at each operation are bound there; see bindLate.
func (k *RKey) bind() {
	k.unbind()
	e := k.ep
	if e.fences > 0 || e.state != epOpen || e.w.lateKeys {
		return
	}
	if l := e.lane(wireup.RMA); l != nil {
		k.bindRMA(l)
	}
	if l := e.lane(wireup.AMO); l != nil {
		k.bindAMO(l)
	}
}

// bindLate binds the key for one operation, after which the caller unbinds it, where
// Config.KeyResolve asks for that. It reports false if there is nothing to bind to, or
// the key is bound and the operation must take the slow way all the same.
func (k *RKey) bindLate(p wireup.Purpose) bool {
	e := k.ep
	if e == nil || e.fences > 0 || e.state != epOpen || k.bound() {
		return false
	}
	l := e.lane(p)
	if l == nil {
		return false
	}
	if p == wireup.RMA {
		k.bindRMA(l)
	} else {
		k.bindAMO(l)
	}
	return k.bound()
}

// bound reports that some operation is bound to a lane.
func (k *RKey) bound() bool { return k.put != nil || k.get != nil || k.amo != nil }

// bindAMO points atomics at a lane, if the key permits them.
func (k *RKey) bindAMO(l *lane) {
	if l.amo == nil || k.packed.access&uct.AccessRemoteAtomic == 0 {
		return
	}
	key, err := k.resolve(l.iface.index, l.remote)
	if err != nil {
		return // told by the operation
	}
	k.amo, k.amoKey = l.amo, key
	a := &l.iface.attr.Atomic
	k.post = [2]uct.AtomicOps{a.Post32, a.Post64}
	k.fetch = [2]uct.AtomicOps{a.Fetch32, a.Fetch64}
}

// bindRMA points put and get at a lane, as far as the key permits them.
func (k *RKey) bindRMA(l *lane) {
	key, err := k.resolve(l.iface.index, l.remote)
	if err != nil {
		return // told by the operation
	}
	a := l.iface.attr
	longest := func(limits *uct.OpLimits) int { return min(limits.MaxBcopy, l.iface.w.ctx.zcopyThresh(limits)-1) }
	k.rma = key
	if l.put != nil && k.packed.access&uct.AccessRemoteWrite != 0 {
		k.put, k.maxPut = l.put, longest(&a.Put)
		if a.Caps.Has(uct.CapPutShort) {
			k.maxShort = a.Put.MaxShort
		}
	}
	if l.get != nil && k.packed.access&uct.AccessRemoteRead != 0 {
		k.get, k.maxGet = l.get, longest(&a.Get)
	}
}

// unbind makes every operation take the slow way.
func (k *RKey) unbind() {
	k.put, k.get, k.amo = nil, nil, nil
	k.maxShort, k.maxPut, k.maxGet = -1, -1, -1
	k.post, k.fetch = [2]uct.AtomicOps{}, [2]uct.AtomicOps{}
}

// Len is the length in bytes of the memory that the key opens, and Addr its
// address at the target.
func (k *RKey) Len() uint64 { return k.packed.length }

// Addr is the address of the first byte at the target.
func (k *RKey) Addr() uint64 { return k.packed.addr }

// Close gives the key back. Operations with it must have ended. Idempotent.
func (k *RKey) Close() {
	e := k.ep
	if e == nil {
		return
	}
	k.unbind()
	if k.prev == nil {
		e.keys = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	}
	k.release()
}

func (k *RKey) release() {
	for i := range k.parts {
		if f := k.parts[i].key.Release; f != nil {
			f()
		}
	}
	k.ep, k.parts, k.next, k.prev = nil, nil, nil, nil
}

// bindKeys binds the keys of the EP to its lanes.
func (e *EP) bindKeys() {
	for k := e.keys; k != nil; k = k.next {
		k.bind()
	}
}

func (e *EP) unbindKeys() {
	for k := e.keys; k != nil; k = k.next {
		k.unbind()
	}
}
