package broken

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// keepingMem returns hooks for domains whose Mem.Close returns nil and does nothing: always (KeepMem), or after an
// iface was closed (ForgetMem). Close of the domain closes the memory. With ForgetMem, Close of an iface does nothing
// either, and the iface serves its peers until Close of the domain.
func keepingMem(k Fault) wrap.Hooks {
	late := &atomic.Bool{}
	late.Store(k == KeepMem)
	w := wrap.Hooks{}
	var ifaces []*lateIface
	w.MD = func(m *wrap.MD) {
		g := &keepingMD{MD: m.MD, late: late, ifaces: &ifaces}
		m.Has.Reg, m.Has.Alloc, m.MD = &keptRegistrar{m.Has.Reg, g}, &keptAllocator{m.Has.Alloc, g}, g
	}
	if k == ForgetMem {
		w.Iface = func(i *wrap.Iface) {
			l := &lateIface{i.Iface, late}
			ifaces = append(ifaces, l)
			i.Iface = l
		}
	}
	return w
}

// keepingMD closes in Close first the ifaces in ifaces, then the memory in kept, then the domain.
type keepingMD struct {
	uct.MD
	late   *atomic.Bool // Close of memory does nothing
	ifaces *[]*lateIface

	mu   sync.Mutex
	kept []uct.Mem
}

// remote is the set of access rights that let peers access memory.
const remote = uct.AccessRemoteRead | uct.AccessRemoteWrite | uct.AccessRemoteAtomic

// keep wraps m if peers can access it. Memory with local access is not wrapped, because a transport may require its own
// Mem for local buffers.
func (g *keepingMD) keep(m uct.Mem, access uct.Access, err error) (uct.Mem, error) {
	if err != nil || access&remote == 0 {
		return m, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kept = append(g.kept, m)
	return &keptMem{m, g.late}, nil
}

func (g *keepingMD) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, i := range *g.ifaces {
		errs = append(errs, i.Iface.Close())
	}
	*g.ifaces = nil
	for _, m := range g.kept {
		errs = append(errs, m.Close())
	}
	return errors.Join(append(errs, g.MD.Close())...)
}

type keptRegistrar struct {
	uct.Registrar
	g *keepingMD
}

func (r *keptRegistrar) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	m, err := r.Registrar.Reg(buf, access)
	return r.g.keep(m, access, err)
}

type keptAllocator struct {
	uct.Allocator
	g *keepingMD
}

func (a *keptAllocator) Alloc(n int, access uct.Access) (uct.Mem, error) {
	m, err := a.Allocator.Alloc(n, access)
	return a.g.keep(m, access, err)
}

type keptMem struct {
	uct.Mem
	late *atomic.Bool
}

func (m *keptMem) Close() error {
	if m.late.Load() {
		return nil
	}
	return m.Mem.Close()
}

// lateIface is an iface that keepingMD.Close closes; its own Close sets closed and returns nil.
type lateIface struct {
	uct.Iface
	closed *atomic.Bool
}

func (i *lateIface) Close() error {
	i.closed.Store(true)
	return nil
}

// keepingGet clears the buffer of a zero-copy get in a Progress after its completion.
type keepingGet struct {
	uct.Getter
	e *wrap.EP
}

func (g *keepingGet) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	buf := iov[0].Buf
	return g.Getter.GetZcopy(iov, raddr, key, hooked(c, func(h *hook) {
		h.fire()
		later(g.e, func() error { clear(buf); return nil })
	}))
}
