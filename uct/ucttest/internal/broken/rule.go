package broken

import (
	"sync"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// withoutAtomics returns the attributes of i without the claim of atomics.
func withoutAtomics(i uct.Iface) *uct.IfaceAttr {
	a := *i.Attr()
	a.Caps &^= uct.CapAtomic
	a.Atomic = uct.AtomicAttr{}
	a.Costs[uct.AtomicPost], a.Costs[uct.AtomicFetch] = uct.Cost{}, uct.Cost{}
	return &a
}

// withoutCost returns the attributes of i without the cost of put bcopy.
func withoutCost(i uct.Iface) *uct.IfaceAttr {
	a := *i.Attr()
	a.Costs[uct.PutBcopy] = uct.Cost{}
	return &a
}

// withLongerPut returns the attributes of i with a limit of put zcopy that is one byte too high.
func withLongerPut(i uct.Iface) *uct.IfaceAttr {
	a := *i.Attr()
	a.Put.MaxZcopy++
	return &a
}

// releasingAll returns hooks for domains that unpack each key to the same value every time and invalidate that value
// with the first release.
func releasingAll() wrap.Hooks {
	var released sync.Map // of uct.RKey
	return wrap.Hooks{
		MD: func(m *wrap.MD) { m.Has.Keys = &forgetfulKeys{m.Has.Keys, &released} },
		EP: func(e *wrap.EP) { e.Has.Put = &forgetfulPut{e.Has.Put, &released} },
	}
}

type forgetfulKeys struct {
	uct.RKeyUnpacker
	released *sync.Map
}

func (k *forgetfulKeys) UnpackRKey(b []byte) (uct.RKey, error) {
	key, err := k.RKeyUnpacker.UnpackRKey(b)
	k.released.Delete(key)
	return key, err
}

func (k *forgetfulKeys) ReleaseRKey(key uct.RKey) { k.released.Store(key, true) }

type forgetfulPut struct {
	uct.Putter
	released *sync.Map
}

func (p *forgetfulPut) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if _, released := p.released.Load(key); released {
		return uct.ErrRemoteAccess
	}
	return p.Putter.PutShort(buf, raddr, key)
}

// earlyPut calls the completion of a zero-copy put before PutZcopy returns pending.
type earlyPut struct{ uct.Putter }

func (p *earlyPut) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	pending, err := p.Putter.PutZcopy(iov, raddr, key, hooked(c, func(*hook) {}))
	if err == nil && pending && c != nil {
		c.Complete(0)
	}
	return pending, err
}

// keepingCopy clears the buffer of a bcopy get in a Progress after its completion.
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

// badChecker reports every peer as alive (BlindCheck) or does not complete the check (LoseCheck).
type badChecker struct {
	uct.Checker
	fault Fault
}

func (b *badChecker) Check(c *uct.Completion) (bool, error) {
	if b.fault == BlindCheck {
		return false, nil
	}
	return b.Checker.Check(hooked(c, func(*hook) {}))
}
