package wrap

import "github.com/gucx/gucx/uct"

// Interceptor is called before and after each data operation of an EP, by the owner of the iface.
type Interceptor interface {
	// Before is called before an operation goes to the layer below; an error is what
	// the caller gets instead.
	Before(v uct.Variant) error
	// After is called with what an operation came to: the bytes that were posted, and
	// the error. Not after an error of Before. Its completion may have fired.
	After(v uct.Variant, n int, err error)
}

// Intercept has x see every data operation of the EP. A compare-and-swap is an AtomicFetch, a
// put with notification the put.
func (e *EP) Intercept(x Interceptor) {
	if e.Has.AM != nil {
		e.Has.AM = &amSender{e.Has.AM, x}
	}
	if e.Has.Words != nil {
		e.Has.Words = &wordSender{e.Has.Words, x}
	}
	if e.Has.Put != nil {
		e.Has.Put = &putter{e.Has.Put, x}
	}
	if e.Has.Get != nil {
		e.Has.Get = &getter{e.Has.Get, x}
	}
	if e.Has.Mapped != nil {
		e.Has.Mapped = &mappedGetter{e.Has.Mapped, x}
	}
	if e.Has.Atomics != nil {
		e.Has.Atomics = &atomics{e.Has.Atomics, x}
	}
	if e.Has.Notify != nil {
		e.Has.Notify = &notifier{e.Has.Notify, x}
	}
	if e.Has.Queues != nil {
		e.Has.Queues = &queues{Queuer: e.Has.Queues, x: x}
	}
}

type amSender struct {
	uct.AMSender
	x Interceptor
}

func (s *amSender) AMShort(id uint8, hdr uint64, payload []byte) error {
	if err := s.x.Before(uct.AMShort); err != nil {
		return err
	}
	err := s.AMSender.AMShort(id, hdr, payload)
	s.x.After(uct.AMShort, 8+len(payload), err)
	return err
}

func (s *amSender) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if err := s.x.Before(uct.AMBcopy); err != nil {
		return 0, err
	}
	n, err := s.AMSender.AMBcopy(id, p)
	s.x.After(uct.AMBcopy, n, err)
	return n, err
}

func (s *amSender) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	if err := s.x.Before(uct.AMZcopy); err != nil {
		return false, err
	}
	n := len(hdr) + uct.IOVLen(iov)
	pending, err := s.AMSender.AMZcopy(id, hdr, iov, c)
	s.x.After(uct.AMZcopy, n, err)
	return pending, err
}

// wordSender intercepts messages of two words as short ones.
type wordSender struct {
	below uct.AMWordSender
	x     Interceptor
}

func (s *wordSender) AMWords(id uint8, first, second uint64, payload []byte) error {
	if err := s.x.Before(uct.AMShort); err != nil {
		return err
	}
	err := s.below.AMWords(id, first, second, payload)
	s.x.After(uct.AMShort, 16+len(payload), err)
	return err
}

// mappedGetter intercepts gets of mapped memory as those that are not copied.
type mappedGetter struct {
	below uct.MappedGetter
	x     Interceptor
}

func (g *mappedGetter) GetMapped(buf []byte, raddr uint64, key uct.RKey) bool {
	if g.x.Before(uct.GetZcopy) != nil {
		return false
	}
	ok, err := g.below.GetMapped(buf, raddr, key), error(nil)
	if !ok {
		err = uct.ErrNoResource
	}
	g.x.After(uct.GetZcopy, len(buf), err)
	return ok
}

type putter struct {
	uct.Putter
	x Interceptor
}

func (p *putter) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if err := p.x.Before(uct.PutShort); err != nil {
		return err
	}
	err := p.Putter.PutShort(buf, raddr, key)
	p.x.After(uct.PutShort, len(buf), err)
	return err
}

func (p *putter) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if err := p.x.Before(uct.PutBcopy); err != nil {
		return err
	}
	err := p.Putter.PutBcopy(buf, raddr, key)
	p.x.After(uct.PutBcopy, len(buf), err)
	return err
}

func (p *putter) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if err := p.x.Before(uct.PutZcopy); err != nil {
		return false, err
	}
	n := uct.IOVLen(iov)
	pending, err := p.Putter.PutZcopy(iov, raddr, key, c)
	p.x.After(uct.PutZcopy, n, err)
	return pending, err
}

type notifier struct {
	uct.Notifier
	x Interceptor
}

func (o *notifier) NotifyBcopy(buf []byte, raddr uint64, key uct.RKey, word uint32) error {
	if err := o.x.Before(uct.PutBcopy); err != nil {
		return err
	}
	err := o.Notifier.NotifyBcopy(buf, raddr, key, word)
	o.x.After(uct.PutBcopy, len(buf), err)
	return err
}

func (o *notifier) NotifyZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, word uint32, c *uct.Completion) (bool, error) {
	if err := o.x.Before(uct.PutZcopy); err != nil {
		return false, err
	}
	n := uct.IOVLen(iov)
	pending, err := o.Notifier.NotifyZcopy(iov, raddr, key, word, c)
	o.x.After(uct.PutZcopy, n, err)
	return pending, err
}

type getter struct {
	uct.Getter
	x Interceptor
}

func (g *getter) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if err := g.x.Before(uct.GetShort); err != nil {
		return err
	}
	err := g.Getter.GetShort(buf, raddr, key)
	g.x.After(uct.GetShort, len(buf), err)
	return err
}

func (g *getter) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if err := g.x.Before(uct.GetBcopy); err != nil {
		return false, err
	}
	pending, err := g.Getter.GetBcopy(buf, raddr, key, c)
	g.x.After(uct.GetBcopy, len(buf), err)
	return pending, err
}

func (g *getter) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if err := g.x.Before(uct.GetZcopy); err != nil {
		return false, err
	}
	n := uct.IOVLen(iov)
	pending, err := g.Getter.GetZcopy(iov, raddr, key, c)
	g.x.After(uct.GetZcopy, n, err)
	return pending, err
}

type atomics struct {
	uct.Atomics
	x Interceptor
}

func (a *atomics) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if err := a.x.Before(uct.AtomicPost); err != nil {
		return err
	}
	err := a.Atomics.AtomicPost(op, size, value, raddr, key)
	a.x.After(uct.AtomicPost, size, err)
	return err
}

func (a *atomics) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if err := a.x.Before(uct.AtomicFetch); err != nil {
		return false, err
	}
	pending, err := a.Atomics.AtomicFetch(op, size, value, result, raddr, key, c)
	a.x.After(uct.AtomicFetch, size, err)
	return pending, err
}

func (a *atomics) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if err := a.x.Before(uct.AtomicFetch); err != nil {
		return false, err
	}
	pending, err := a.Atomics.AtomicCSwap(size, compare, swap, result, raddr, key, c)
	a.x.After(uct.AtomicFetch, size, err)
	return pending, err
}
