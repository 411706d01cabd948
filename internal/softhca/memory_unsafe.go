package softhca

import (
	"runtime"
	"unsafe"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/memprot"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/sparse"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// region is a registered memory region of this process. It is immutable.
type region struct {
	key    uint32
	pdn    uint32
	access verbs.Access
	addr   uint64 // of base, as in work requests
	len    uint64
	base   unsafe.Pointer
	pin    *runtime.Pinner
}

// regions maps keys to regions without a lock: entry key>>8.
type regions struct{ slot sparse.Table[region] }

// find checks a local access of n bytes at addr and returns the memory, or nil.
func (rs *regions) find(lkey uint32, addr uint64, n uint64, pdn uint32, need verbs.Access) unsafe.Pointer {
	r := rs.slot.Load(lkey >> 8 % table.MaxMR)
	if r == nil || r.key != lkey || r.pdn != pdn || r.access&need != need {
		return nil
	}
	off := addr - r.addr
	if addr < r.addr || off > r.len || n > r.len-off {
		return nil
	}
	return unsafe.Add(r.base, off)
}

// register creates a region and publishes it to peers. ErrNoMemory; the errors of memprot.
func (h *hca) register(pdn uint32, buf []byte, access verbs.Access) (uint32, error) {
	base := unsafe.Pointer(unsafe.SliceData(buf))
	off, inArena := h.arenaOffset(uint64(uintptr(base)), uint64(len(buf)))
	if !inArena {
		if err := memprot.Check(buf, access&verbs.AccessLocalWrite != 0); err != nil {
			return 0, err
		}
	}
	h.owner.Reclaim()
	h.mu.Lock()
	defer h.mu.Unlock()
	idx, variant, ok := h.mrIDs.get()
	if !ok {
		return 0, ucs.ErrNoMemory
	}
	key := idx<<8 | uint32(variant)
	r := &region{key: key, pdn: pdn, access: access, base: base,
		addr: uint64(uintptr(base)), len: uint64(len(buf))}
	if !inArena {
		r.pin = new(runtime.Pinner)
		r.pin.Pin(base)
	}
	h.regions.slot.Store(idx, r)

	e := h.table.MR(key)
	e.Access.Store(uint32(access))
	e.PDN.Store(pdn)
	e.Set(r.addr, r.len, off)
	e.Kind.Store(table.Private)
	if inArena {
		e.Kind.Store(table.InArena)
	}
	e.Key.Store(key)
	return key, nil
}

// arenaOffset returns the offset of a range of addresses in the arena; false if it is elsewhere.
func (h *hca) arenaOffset(addr, n uint64) (uint64, bool) {
	if h.arena == nil {
		return 0, false
	}
	mem := h.arenaSeg.Bytes()
	start, size := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), uint64(len(mem))
	if addr < start || addr-start > size || n > size-(addr-start) {
		return 0, false
	}
	return addr - start, true
}

// deregister revokes a key, and returns when no peer accesses the region, or an
// *ucs.InUseError: then the caller may deregister the region again. With free, a buffer from
// AllocBuffer, it does not wait for accesses in progress: the memory is freed after them.
func (h *hca) deregister(key uint32, free freer) error {
	h.owner.Reclaim()
	r := h.revoke(key)
	if r == nil {
		return ucs.ErrInvalidParam
	}
	h.grace()
	inside := h.visits(key)
	if free == nil {
		if inside = h.owner.Await(inside, ucs.RevokeLimit); len(inside) > 0 {
			return guard.InUse(inside)
		}
	}
	h.mu.Lock()
	delete(h.revoked, key)
	h.mu.Unlock()
	h.owner.Free(inside, int(r.len), func() { h.freeRegion(r, free) })
	return nil
}

// revoke hides a region: no access begins any more. It returns the region, also if it was
// revoked before; nil if there is none.
func (h *hca) revoke(key uint32) *region {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.regions.slot.Load(key >> 8 % table.MaxMR)
	if r == nil || r.key != key {
		return h.revoked[key]
	}
	h.revoked[key] = r
	h.table.MR(key).Key.Store(0)
	h.regions.slot.Store(key>>8%table.MaxMR, nil)
	h.table.Generation().Add(1)
	return r
}

// freeRegion unpins or frees the memory of a revoked region, and releases its key. No peer
// accesses the region.
func (h *hca) freeRegion(r *region, free freer) {
	r.unpin()
	if free != nil {
		free.free()
	}
	h.mu.Lock()
	h.mrIDs.put(r.key >> 8 % table.MaxMR)
	h.mu.Unlock()
}

func (r *region) unpin() {
	if r.pin != nil {
		r.pin.Unpin()
	}
}

// idPool allocates table indexes from 1, each with a variant byte that changes on every
// allocation. It prefers indexes that were never used, and then the one that was freed first.
type idPool struct {
	limit   uint32
	reuseAt int // number of free indexes from which they are reused; 0: only at limit
	next    uint32
	free    []uint32
	variant []uint8 // by index - 1
}

func (p *idPool) get() (idx uint32, variant uint8, ok bool) {
	reuse := p.reuseAt > 0 && len(p.free) >= p.reuseAt
	if p.next+1 < p.limit && !reuse {
		p.next++
		idx = p.next
		p.variant = append(p.variant, 0)
	} else if len(p.free) > 0 {
		idx = p.free[0]
		p.free = p.free[1:]
	} else {
		return 0, 0, false
	}
	v := &p.variant[idx-1]
	*v++
	return idx, *v, true
}

func (p *idPool) put(idx uint32) { p.free = append(p.free, idx) }

// live returns the number of allocated indexes.
func (p *idPool) live() int { return int(p.next) - len(p.free) }
