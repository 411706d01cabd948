package ib

import (
	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// cacheLine is the alignment of buffers: that of amd64 and a divisor of arm64's.
const cacheLine = 64

// AlignLine rounds n up to whole cache lines.
func AlignLine(n int) int { return (n + cacheLine - 1) &^ (cacheLine - 1) }

// Pool is a fixed number of registered buffers of equal length with a free list.
// It belongs to the owner of an iface; nothing allocates after NewPool.
type Pool struct {
	mem    *Mem
	stride int
	length int
	free   []uint32
	lent   []bool // by number; with -tags invariants
}

// NewPool makes count buffers of n bytes, each on cache lines of its own, for
// local use by the device: peers have no right to them.
func (md *MD) NewPool(count, n int) (*Pool, error) {
	p := &Pool{stride: AlignLine(n), length: n, free: make([]uint32, count)}
	mem, err := md.AllocMem(count*p.stride, uct.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	p.mem = mem
	if invariants.Enabled {
		p.lent = make([]bool, count)
	}
	for i := range p.free { // the lowest number on top, so that few pages are touched
		p.free[i] = uint32(count - 1 - i)
	}
	return p, nil
}

// Get takes a buffer; false if none is free.
func (p *Pool) Get() (i uint32, ok bool) {
	last := len(p.free) - 1
	if last < 0 {
		return 0, false
	}
	i = p.free[last]
	p.free = p.free[:last]
	if invariants.Enabled {
		p.lent[i] = true
	}
	return i, true
}

// Put gives buffer i back. A second time is a broken invariant: the buffer would go
// to two users.
func (p *Pool) Put(i uint32) {
	if invariants.Enabled {
		invariants.Assert(p.lent[i], "buffer %d is not in use", i)
		p.lent[i] = false
	}
	p.free = append(p.free, i)
}

// Free is the number of buffers that Get can take.
func (p *Pool) Free() int { return len(p.free) }

// Bytes is buffer i.
func (p *Pool) Bytes(i uint32) []byte {
	off := int(i) * p.stride
	return p.mem.buf[off : off+p.length : off+p.length]
}

// SGE names the bytes [off, off+n) of buffer i, which must lie in it.
func (p *Pool) SGE(i uint32, off, n int) verbs.SGE {
	return verbs.SGE{
		Addr:   p.mem.addr + uint64(int(i)*p.stride+off),
		Length: uint32(n),
		LKey:   p.mem.lkey,
	}
}

// Close frees the memory, which the device must not use any more.
func (p *Pool) Close() error { return p.mem.Close() }
