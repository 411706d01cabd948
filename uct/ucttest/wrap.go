package ucttest

import "github.com/gucx/gucx/uct"

// wrapping changes the objects of a memory domain as they are opened. Any of the
// functions may be nil.
type wrapping struct {
	md    func(*mdParts)
	iface func(*ifaceParts)
	ep    func(*epParts)
}

// mdParts is a memory domain with its optional interfaces; nil where absent.
type mdParts struct {
	uct.MD
	reg    uct.Registrar
	alloc  uct.Allocator
	unpack uct.RKeyUnpacker
}

// ifaceParts is an iface with its optional interfaces; nil where absent. Watches
// are left out: a wrapper may hold work that they do not know.
type ifaceParts struct {
	uct.Iface
	addr uct.IfaceAddresser
	wake uct.Waker

	onError func(uct.EP, error)
	eps     map[uct.EP]uct.EP // of the wrapped transport to ours
	all     []*epParts
}

// epParts is an EP with its classes; nil where absent.
type epParts struct {
	uct.EP
	iface   *ifaceParts
	am      uct.AMSender
	put     uct.Putter
	get     uct.Getter
	atomics uct.Atomics
	conn    uct.EPConnector
}

// wrapMD returns md with everything changed by w.
func wrapMD(md uct.MD, w *wrapping) uct.MD {
	m := &mdParts{}
	m.reg, _ = md.(uct.Registrar)
	m.alloc, _ = md.(uct.Allocator)
	m.unpack, _ = md.(uct.RKeyUnpacker)
	m.MD = &openingMD{MD: md, w: w}
	if w.md != nil {
		w.md(m)
	}
	return m.join()
}

// openingMD wraps the ifaces that it opens.
type openingMD struct {
	uct.MD
	w *wrapping
}

// OpenIface opens a wrapped iface.
func (m *openingMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i := &ifaceParts{onError: p.OnError, eps: map[uct.EP]uct.EP{}}
	if p.OnError != nil {
		p.OnError = func(ep uct.EP, err error) { i.onError(i.eps[ep], err) }
	}
	inner, err := m.MD.OpenIface(p)
	if err != nil {
		return nil, err
	}
	i.addr, _ = inner.(uct.IfaceAddresser)
	i.wake, _ = inner.(uct.Waker)
	i.Iface = &openingIface{Iface: inner, w: m.w, parts: i}
	if m.w.iface != nil {
		m.w.iface(i)
	}
	return i.join(), nil
}

// openingIface wraps the endpoints that it makes.
type openingIface struct {
	uct.Iface
	w     *wrapping
	parts *ifaceParts
}

// NewEP makes a wrapped EP.
func (i *openingIface) NewEP(p uct.EPParams) (uct.EP, error) {
	inner, err := i.Iface.NewEP(p)
	if err != nil {
		return nil, err
	}
	e := &epParts{EP: inner, iface: i.parts}
	e.am, _ = inner.(uct.AMSender)
	e.put, _ = inner.(uct.Putter)
	e.get, _ = inner.(uct.Getter)
	e.atomics, _ = inner.(uct.Atomics)
	e.conn, _ = inner.(uct.EPConnector)
	if i.w.ep != nil {
		i.w.ep(e)
	}
	outer := e.join()
	i.parts.eps[inner] = outer
	i.parts.all = append(i.parts.all, e)
	return outer, nil
}

// join makes an MD that has exactly the interfaces of its parts.
func (m *mdParts) join() uct.MD {
	switch r, a, u := m.reg, m.alloc, m.unpack; {
	case r != nil && a != nil && u != nil:
		return &struct {
			uct.MD
			uct.Registrar
			uct.Allocator
			uct.RKeyUnpacker
		}{m.MD, r, a, u}
	case r != nil && a != nil:
		return &struct {
			uct.MD
			uct.Registrar
			uct.Allocator
		}{m.MD, r, a}
	case r != nil && u != nil:
		return &struct {
			uct.MD
			uct.Registrar
			uct.RKeyUnpacker
		}{m.MD, r, u}
	case a != nil && u != nil:
		return &struct {
			uct.MD
			uct.Allocator
			uct.RKeyUnpacker
		}{m.MD, a, u}
	case r != nil:
		return &struct {
			uct.MD
			uct.Registrar
		}{m.MD, r}
	case a != nil:
		return &struct {
			uct.MD
			uct.Allocator
		}{m.MD, a}
	case u != nil:
		return &struct {
			uct.MD
			uct.RKeyUnpacker
		}{m.MD, u}
	}
	return m.MD
}

// join makes an iface that has exactly the interfaces of its parts.
func (i *ifaceParts) join() uct.Iface {
	switch a, w := i.addr, i.wake; {
	case a != nil && w != nil:
		return &struct {
			uct.Iface
			uct.IfaceAddresser
			uct.Waker
		}{i.Iface, a, w}
	case a != nil:
		return &struct {
			uct.Iface
			uct.IfaceAddresser
		}{i.Iface, a}
	case w != nil:
		return &struct {
			uct.Iface
			uct.Waker
		}{i.Iface, w}
	}
	return i.Iface
}

// join makes an EP that has exactly the interfaces of its parts.
func (e *epParts) join() uct.EP {
	data := e.joinData()
	if e.conn == nil {
		return data.EP
	}
	return data.connecting(e.conn)
}

// dataEP is an EP with its data classes, and the same with a connector.
type dataEP struct {
	uct.EP
	connecting func(uct.EPConnector) uct.EP
}

// joinData makes an EP with exactly the data classes of its parts: a struct type
// for each set.
func (e *epParts) joinData() dataEP {
	switch am, rma, amo := e.am != nil, e.put != nil && e.get != nil, e.atomics != nil; {
	case am && rma && amo:
		v := &fullClasses{e.EP, e.am, e.put, e.get, e.atomics}
		return dataEP{v, func(c uct.EPConnector) uct.EP {
			return &struct {
				*fullClasses
				uct.EPConnector
			}{v, c}
		}}
	case am && rma:
		v := &memoryClasses{e.EP, e.am, e.put, e.get}
		return dataEP{v, func(c uct.EPConnector) uct.EP {
			return &struct {
				*memoryClasses
				uct.EPConnector
			}{v, c}
		}}
	case rma && amo:
		v := &remoteClasses{e.EP, e.put, e.get, e.atomics}
		return dataEP{v, func(c uct.EPConnector) uct.EP {
			return &struct {
				*remoteClasses
				uct.EPConnector
			}{v, c}
		}}
	case am && e.put == nil && e.get == nil && !amo:
		v := &messageClasses{e.EP, e.am}
		return dataEP{v, func(c uct.EPConnector) uct.EP {
			return &struct {
				*messageClasses
				uct.EPConnector
			}{v, c}
		}}
	}
	panic("ucttest: no wrapper for an ep with this set of classes")
}

// The sets of classes that wrappers know.
type (
	fullClasses struct {
		uct.EP
		uct.AMSender
		uct.Putter
		uct.Getter
		uct.Atomics
	}
	memoryClasses struct {
		uct.EP
		uct.AMSender
		uct.Putter
		uct.Getter
	}
	remoteClasses struct {
		uct.EP
		uct.Putter
		uct.Getter
		uct.Atomics
	}
	messageClasses struct {
		uct.EP
		uct.AMSender
	}
)

// hook is told when the completion of an operation fires, and then tells the user.
// A post without completion has none.
type hook struct {
	uct.Completion
	user *uct.Completion
}

// hooked returns a completion that calls then, which may call fire.
func hooked(user *uct.Completion, then func(*hook)) *uct.Completion {
	if user == nil {
		return nil
	}
	h := &hook{user: user}
	h.Count = 1
	h.Func = func(*uct.Completion) { then(h) }
	return &h.Completion
}

// fire completes the user's completion.
func (h *hook) fire() { h.user.Complete(h.Status) }

// eachPost calls before in front of every data operation of e.
func (e *epParts) eachPost(before func(name string)) {
	if e.am != nil {
		e.am = &beforeAM{e.am, before}
	}
	if e.put != nil {
		e.put = &beforePut{e.put, before}
	}
	if e.get != nil {
		e.get = &beforeGet{e.get, before}
	}
	if e.atomics != nil {
		e.atomics = &beforeAtomics{e.atomics, before}
	}
}

type beforeAM struct {
	uct.AMSender
	before func(string)
}

func (b *beforeAM) AMShort(id uint8, hdr uint64, payload []byte) error {
	b.before("am short")
	return b.AMSender.AMShort(id, hdr, payload)
}

func (b *beforeAM) AMBcopy(id uint8, p uct.Packer) (int, error) {
	b.before("am bcopy")
	return b.AMSender.AMBcopy(id, p)
}

func (b *beforeAM) AMZcopy(id uint8, hdr []byte, iov []uct.IOV, c *uct.Completion) (bool, error) {
	b.before("am zcopy")
	return b.AMSender.AMZcopy(id, hdr, iov, c)
}

type beforePut struct {
	uct.Putter
	before func(string)
}

func (b *beforePut) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	b.before("put short")
	return b.Putter.PutShort(buf, raddr, key)
}

func (b *beforePut) PutBcopy(p uct.Packer, raddr uint64, key uct.RKey) (int, error) {
	b.before("put bcopy")
	return b.Putter.PutBcopy(p, raddr, key)
}

func (b *beforePut) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b.before("put zcopy")
	return b.Putter.PutZcopy(iov, raddr, key, c)
}

type beforeGet struct {
	uct.Getter
	before func(string)
}

func (b *beforeGet) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	b.before("get short")
	return b.Getter.GetShort(buf, raddr, key)
}

func (b *beforeGet) GetBcopy(u uct.Unpacker, n int, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b.before("get bcopy")
	return b.Getter.GetBcopy(u, n, raddr, key, c)
}

func (b *beforeGet) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b.before("get zcopy")
	return b.Getter.GetZcopy(iov, raddr, key, c)
}

type beforeAtomics struct {
	uct.Atomics
	before func(string)
}

func (b *beforeAtomics) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	b.before("atomic post")
	return b.Atomics.AtomicPost(op, size, value, raddr, key)
}

func (b *beforeAtomics) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b.before("atomic fetch")
	return b.Atomics.AtomicFetch(op, size, value, result, raddr, key, c)
}

func (b *beforeAtomics) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b.before("atomic cswap")
	return b.Atomics.AtomicCSwap(size, compare, swap, result, raddr, key, c)
}
