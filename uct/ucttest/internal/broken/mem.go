package broken

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// keepingMem makes domains that close their memory with themselves, though Mem.Close
// says that it is closed: always (KeepMem), or from when an iface has closed, which
// then serves on until its domain closes (ForgetMem).
func keepingMem(k Kind) wrap.Hooks {
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

// keepingMD closes its memory with itself, and before that all ifaces that are late.
type keepingMD struct {
	uct.MD
	late   *atomic.Bool // Close of memory does nothing
	ifaces *[]*lateIface

	mu   sync.Mutex
	kept []uct.Mem
}

// remote are the rights of memory that peers reach.
const remote = uct.AccessRemoteRead | uct.AccessRemoteWrite | uct.AccessRemoteAtomic

// keep wraps memory that peers reach; a transport may want its own as local buffers.
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

// lateIface closes later than it says.
type lateIface struct {
	uct.Iface
	closed *atomic.Bool
}

func (i *lateIface) Close() error {
	i.closed.Store(true)
	return nil
}

// keepingGet writes the buffer of a zero-copy get once more in a later Progress.
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
