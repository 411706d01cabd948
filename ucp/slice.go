package ucp

import (
	"fmt"
	"math"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// sliceStage names Slice in errors.
var sliceStage = stage{name: "map", sized: true, role: wireup.RMA}

// Slice returns the memory of the key as bytes of this process, for loads and stores without an operation: all Len bytes from
// Addr on. The peer must be on this host, over sm and with memory of [Context.MemAlloc], or be the worker itself, over
// self. Later calls return the same bytes. The caller may store only if the key permits writes.
//
// The bytes are valid until Close of the key, which unmaps them: a later access faults. Until then they remain mapped, and
// accesses do not fault, also if the EP or the worker is closed, the peer closes the memory, or the peer dies. If the peer
// has died, the content does not change any more. If the peer has closed the memory, the content is undefined: the peer may
// use it for other memory, which a store would overwrite. Over self the bytes are the memory itself: if the program has
// mapped this memory and unmaps it, accesses fault.
//
// Loads and stores are not ordered with operations: flush earlier puts first. Both sides must synchronize, for
// example by messages or by atomics on aligned words; the race detector does not see accesses of other processes.
//
// The goroutine that owns the worker must call Slice; any goroutine may use the bytes. Slice does not block. Errors:
//
//   - ErrBusy, never wrapped: the EP is not connected yet. Slice connects it: make progress and call Slice again, for
//     example in Worker.Until.
//   - ErrUnsupported: the transport between the workers does not map the memory. Use [EP.Get] and [EP.Put].
//   - ErrInvalidRKey: the key is closed.
//   - ErrRemoteAccess: the key does not permit reads, or the peer has closed the memory.
//   - ErrNoMemory: the memory does not fit the address space.
//   - Those of [EP.Err].
func (k *RKey) Slice() ([]byte, error) {
	e := k.ep
	if e == nil {
		return nil, fmt.Errorf("ucp: map memory: %w: the key is closed", uct.ErrInvalidRKey)
	}
	if mem := k.packed.View(); mem != nil {
		return mem, nil
	}
	a := action{stage: &sliceStage, n: int(min(k.size, math.MaxInt))}
	if err := e.refuses(a); err != nil {
		return nil, err
	}
	if !e.peer.Best[wireup.RMA].OK {
		return nil, e.wrong(a, ucs.ErrUnsupported, e.w.unreachable(wireup.RMA, e.peer.Addr))
	}
	if k.size > math.MaxInt || k.packed.Access&uct.AccessRemoteRead == 0 {
		return nil, e.wrong(a, ucs.ErrRemoteAccess, "the key does not permit reads of that length")
	}
	x := e.lane(wireup.RMA)
	if x == nil {
		if why := e.lostRoleErr(wireup.RMA); why != nil {
			return nil, e.errorOf(a, why)
		}
		e.requestLane(wireup.RMA)
		return nil, ucs.ErrBusy
	}
	return k.mapOver(x, a)
}

// mapOver is Slice over a lane.
func (k *RKey) mapOver(x *lane, a action) ([]byte, error) {
	m := x.EP.Ops().Map
	if m == nil {
		return nil, k.ep.wrong(a, ucs.ErrUnsupported, x.Iface.String()+" does not map memory of peers")
	}
	key, err := k.resolve(x.Iface.index, x.Remote)
	if err != nil {
		return nil, err
	}
	mem, unmap, err := m.Map(k.Addr(), a.n, key)
	switch {
	case err == uct.ErrNoResource:
		return nil, ucs.ErrBusy
	case err == uct.ErrUnsupported:
		return nil, k.ep.wrong(a, err, "the memory is registered and not allocated, so "+x.Iface.String()+" does not map it")
	case err != nil:
		return nil, k.ep.refused(a, err)
	}
	if !x.Connected {
		k.ep.link.markConnected(x)
	}
	k.packed.SetView(mem, unmap)
	return mem, nil
}
