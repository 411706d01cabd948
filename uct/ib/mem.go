package ib

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Mem is registered memory: the uct.Mem of this component.
type Mem struct {
	md    *MD
	mr    *verbs.MR
	buf   []byte
	addr  uint64
	span  uint64 // length of buf, if it does not exceed that of one work request; else 0
	lkey  uint32
	local bool         // local writes are permitted
	block verbs.Buffer // nil for Reg

	mu     sync.Mutex
	closed bool
}

var _ uct.Mem = (*Mem)(nil)

// Reg implements uct.Registrar.
func (md *MD) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	m, err := md.register(buf, access, nil)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Alloc implements uct.Allocator.
func (md *MD) Alloc(n int, access uct.Access) (uct.Mem, error) {
	if n < 1 {
		return nil, md.opError("allocate memory", fmt.Errorf("%w: length %d", uct.ErrInvalidParam, n))
	}
	block, err := md.ctx.AllocBuffer(n)
	if err != nil {
		return nil, md.opError(fmt.Sprintf("allocate %d bytes", n), err)
	}
	m, err := md.register(block.Bytes()[:n:n], access, block)
	if err != nil {
		return nil, errors.Join(err, block.Close())
	}
	return m, nil
}

func (md *MD) register(buf []byte, access uct.Access, block verbs.Buffer) (*Mem, error) {
	if len(buf) == 0 {
		return nil, md.opError("register memory", fmt.Errorf("%w: empty buffer", uct.ErrInvalidParam))
	}
	if access&^uct.AccessAll != 0 {
		return nil, md.opError("register memory", fmt.Errorf("%w: access %#x", uct.ErrInvalidParam, uint8(access)))
	}
	if err := md.Hold(); err != nil {
		return nil, err
	}
	mr, err := md.pd.RegMR(buf, verbsAccess(access))
	if err != nil {
		md.Drop()
		return nil, md.opError(fmt.Sprintf("register %d bytes", len(buf)), err)
	}
	span := uint64(len(buf))
	if span > uint64(md.MaxMessage()) {
		span = 0
	}
	return &Mem{md: md, span: span, mr: mr, buf: buf, addr: mr.Addr(), lkey: mr.LKey(), block: block,
		local: verbsAccess(access)&verbs.AccessLocalWrite != 0}, nil
}

// verbsAccess converts access flags. Remote write and atomic imply local write, as verbs require
// (IBTA volume 1, 10.6.3).
func verbsAccess(a uct.Access) (v verbs.Access) {
	if a&(uct.AccessLocalWrite|uct.AccessRemoteWrite|uct.AccessRemoteAtomic) != 0 {
		v |= verbs.AccessLocalWrite
	}
	if a&uct.AccessRemoteRead != 0 {
		v |= verbs.AccessRemoteRead
	}
	if a&uct.AccessRemoteWrite != 0 {
		v |= verbs.AccessRemoteWrite
	}
	if a&uct.AccessRemoteAtomic != 0 {
		v |= verbs.AccessRemoteAtomic
	}
	return v
}

// Bytes implements uct.Mem.
func (m *Mem) Bytes() []byte { return m.buf }

// Addr implements uct.Mem.
func (m *Mem) Addr() uint64 { return m.addr }

// PackRKey implements uct.Mem. ErrClosed after Close.
func (m *Mem) PackRKey(b []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return b, m.md.opError("pack rkey", uct.ErrClosed)
	}
	return appendRKey(b, m.mr.RKey()), nil
}

// Close implements uct.Mem.
func (m *Mem) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	if err := m.deregister(); err != nil {
		return m.md.opError("deregister memory", err)
	}
	m.closed = true
	m.md.Drop()
	return nil
}

// deregister deregisters the memory, and frees allocated memory.
func (m *Mem) deregister() error {
	if m.block != nil {
		return m.mr.CloseAndFree(m.block)
	}
	return m.mr.Close()
}

// SGE returns an SGE for b in a work request. ok is false if b is not inside the memory.
func (m *Mem) SGE(b []byte) (s verbs.SGE, ok bool) {
	start := addrOf(b)
	off, whole := start-m.addr, uint64(len(m.buf)) // off wraps around if b is below the memory
	if off > whole || uint64(len(b)) > whole-off {
		return verbs.SGE{}, false
	}
	return verbs.SGE{Addr: start, Length: uint32(len(b)), LKey: m.lkey}, true
}

// OneSGE is SGE for the only buffer of a work request. ok is also false if the memory is longer
// than the maximum of a work request, because b may be too.
func (m *Mem) OneSGE(b []byte) (s verbs.SGE, ok bool) {
	start := addrOf(b)
	off := start - m.addr
	if off > m.span || uint64(len(b)) > m.span-off {
		return verbs.SGE{}, false
	}
	return verbs.SGE{Addr: start, Length: uint32(len(b)), LKey: m.lkey}, true
}

// Of reports whether m is memory of md. m may be nil.
func (m *Mem) Of(md *MD) bool { return m != nil && m.md == md }

// SGEs appends to dst an SGE for each non-empty buffer of iov, for a work request of md. The
// capacity of dst must be sufficient. ok is false if a Mem is missing, belongs to another MD, or
// does not contain its Buf.
func (md *MD) SGEs(dst []verbs.SGE, iov []uct.IOV) (sges []verbs.SGE, ok bool) {
	for i := range iov {
		if len(iov[i].Buf) == 0 {
			continue
		}
		m, is := iov[i].Mem.(*Mem)
		if !is || !m.Of(md) {
			return dst, false
		}
		s, in := m.SGE(iov[i].Buf)
		if !in {
			return dst, false
		}
		dst = append(dst, s)
	}
	return dst, true
}

// Writable reports whether the device may write to all non-empty buffers of iov, whose memory must
// be of this component.
func Writable(iov []uct.IOV) bool {
	for i := range iov {
		if len(iov[i].Buf) > 0 && !iov[i].Mem.(*Mem).local {
			return false
		}
	}
	return true
}
