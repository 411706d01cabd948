package buffer

import (
	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// cacheLine is the alignment of buffers: the cache line of amd64, which divides that of arm64.
const cacheLine = 64

// alignLine rounds n up to whole cache lines.
func alignLine(n int) int { return (n + cacheLine - 1) &^ (cacheLine - 1) }

// Pool is a fixed number of registered buffers of equal length. The owner of an iface owns it; its
// methods do not allocate.
type Pool struct {
	mem    uct.Mem
	buf    []byte // of mem
	addr   uint64
	lkey   uint32
	stride int
	length int
	free   []uint32
	inUse  []bool // by index; only with -tags invariants
}

// NewPool makes count buffers of n bytes in md, each on separate cache lines. Only the device may access
// them; peers have no access.
func NewPool(md *ib.MD, count, n int) (*Pool, error) {
	p := &Pool{stride: alignLine(n), length: n, free: make([]uint32, count)}
	mem, err := md.Alloc(count*p.stride, uct.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	p.mem, p.buf, p.addr = mem, mem.Bytes(), mem.Addr()
	whole, _ := mem.(*ib.Mem).SGE(p.buf)
	p.lkey = whole.LKey
	if invariants.Enabled {
		p.inUse = make([]bool, count)
	}
	for i := range p.free { // the lowest index is on top, so that few pages are used
		p.free[i] = uint32(count - 1 - i)
	}
	return p, nil
}

// Get allocates a buffer; false if none is free.
func (p *Pool) Get() (i uint32, ok bool) {
	last := len(p.free) - 1
	if last < 0 {
		return 0, false
	}
	i = p.free[last]
	p.free = p.free[:last]
	if invariants.Enabled {
		p.inUse[i] = true
	}
	return i, true
}

// Put frees buffer i. A second Put violates an invariant, because the buffer would have two users.
func (p *Pool) Put(i uint32) {
	if invariants.Enabled {
		invariants.Assert(p.inUse[i], "buffer %d is not in use", i)
		p.inUse[i] = false
	}
	p.free = append(p.free, i)
}

// Free returns the number of free buffers.
func (p *Pool) Free() int { return len(p.free) }

// Bytes returns buffer i.
func (p *Pool) Bytes(i uint32) []byte {
	off := int(i) * p.stride
	return p.buf[off : off+p.length : off+p.length]
}

// SGE returns an SGE for the bytes [off, off+n) of buffer i, which must be inside.
func (p *Pool) SGE(i uint32, off, n int) verbs.SGE {
	return verbs.SGE{
		Addr:   p.addr + uint64(int(i)*p.stride+off),
		Length: uint32(n),
		LKey:   p.lkey,
	}
}

// Close frees the memory. The device must not use it any more.
func (p *Pool) Close() error { return p.mem.Close() }
