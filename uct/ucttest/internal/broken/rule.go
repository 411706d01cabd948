package broken

import (
	"sync"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// withoutAtomics are attributes that do not claim atomics.
func withoutAtomics(i uct.Iface) *uct.IfaceAttr {
	a := *i.Attr()
	a.Caps &^= uct.CapAtomic
	a.Atomic = uct.AtomicAttr{}
	a.Costs[uct.AtomicPost], a.Costs[uct.AtomicFetch] = uct.Cost{}, uct.Cost{}
	return &a
}

// withoutCost are attributes that have forgotten a cost.
func withoutCost(i uct.Iface) *uct.IfaceAttr {
	a := *i.Attr()
	a.Costs[uct.PutBcopy] = uct.Cost{}
	return &a
}

// withLongerPut are attributes with a limit of put zcopy that is too high by a byte.
func withLongerPut(i uct.Iface) *uct.IfaceAttr {
	a := *i.Attr()
	a.Put.MaxZcopy++
	return &a
}

// releasingAll makes domains that give each key one number, also when it is unpacked
// twice, and take it back with the first release.
func releasingAll() wrap.Hooks {
	var gone sync.Map // of keys
	return wrap.Hooks{
		MD: func(m *wrap.MD) { m.Has.Keys = &forgetfulKeys{m.Has.Keys, &gone} },
		EP: func(e *wrap.EP) { e.Has.Put = &forgetfulPut{e.Has.Put, &gone} },
	}
}

type forgetfulKeys struct {
	uct.RKeyUnpacker
	gone *sync.Map
}

func (k *forgetfulKeys) UnpackRKey(b []byte) (uct.RKey, error) {
	key, err := k.RKeyUnpacker.UnpackRKey(b)
	k.gone.Delete(key)
	return key, err
}

func (k *forgetfulKeys) ReleaseRKey(key uct.RKey) { k.gone.Store(key, true) }

type forgetfulPut struct {
	uct.Putter
	gone *sync.Map
}

func (p *forgetfulPut) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if _, gone := p.gone.Load(key); gone {
		return uct.ErrRemoteAccess
	}
	return p.Putter.PutShort(buf, raddr, key)
}

// earlyPut completes what it posts at once, and says that the completion comes later.
type earlyPut struct{ uct.Putter }

func (p *earlyPut) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	pending, err := p.Putter.PutZcopy(iov, raddr, key, hooked(c, func(*hook) {}))
	if err == nil && pending && c != nil {
		c.Complete(0)
	}
	return pending, err
}

// keepingCopy writes the buffer of a copied get once more in a later Progress.
type keepingCopy struct {
	uct.Getter
	e *wrap.EP
}

func (g *keepingCopy) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	return g.Getter.GetBcopy(buf, raddr, key, hooked(c, func(h *hook) {
		h.fire()
		later(g.e, func() error { clear(buf); return nil })
	}))
}

// badChecker looks at nothing, or tells nobody.
type badChecker struct {
	uct.Checker
	kind Kind
}

func (b *badChecker) Check(c *uct.Completion) (bool, error) {
	if b.kind == BlindCheck {
		return false, nil
	}
	return b.Checker.Check(hooked(c, func(*hook) {}))
}
