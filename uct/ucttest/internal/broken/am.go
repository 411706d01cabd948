package broken

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// held is work that a broken transport does later, from Progress.
type held struct{ jobs []func() error }

// retry does what can be done now.
func (h *held) retry() {
	for len(h.jobs) > 0 && h.jobs[0]() != uct.ErrNoResource {
		h.jobs = h.jobs[1:]
	}
}

// retryingIface does held work in Progress.
type retryingIface struct {
	uct.Iface
	held held
}

func (i *retryingIface) Progress() int {
	i.held.retry()
	return i.Iface.Progress()
}

func retrying(i *wrap.Iface) {
	i.Iface, i.Has.Watch, i.Has.Guarded = &retryingIface{Iface: i.Iface}, nil, false
}

// later queues a job on the iface of e.
func later(e *wrap.EP, job func() error) {
	h := &e.On.Iface.(*retryingIface).held
	h.jobs = append(h.jobs, job)
}

// badEvery is which messages a broken transport spoils.
const badEvery = 13

// badAM spoils messages.
type badAM struct {
	uct.AMSender
	kind Kind
	e    *wrap.EP
	n    int
}

func newBadAM(k Kind, e *wrap.EP) *badAM { return &badAM{AMSender: e.Has.AM, kind: k, e: e} }

func (a *badAM) AMShort(id uint8, hdr uint64, payload []byte) error {
	a.n++
	bad := a.n%badEvery == 0
	send := a.AMSender.AMShort
	switch {
	case a.kind == Truncate:
		if limit := a.e.On.Attr().AM.MaxShort - 8; len(payload) > limit {
			payload = payload[:limit]
		}
	case a.kind == WrongID && bad && id <= uct.MaxAMID:
		id ^= 1
	case a.kind == KeepBuffer:
		later(a.e, func() error { return send(id, hdr, payload) })
		return nil
	case a.kind == Drop && bad:
		return nil
	case a.kind == Duplicate && bad:
		if err := send(id, hdr, payload); err != nil {
			return err
		}
	case a.kind == Reorder && bad:
		data := append([]byte{}, payload...)
		later(a.e, func() error { return send(id, hdr, data) })
		return nil
	}
	return send(id, hdr, payload)
}

func (a *badAM) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if a.kind == Corrupt {
		return a.AMSender.AMBcopy(id, &corruptPacker{p})
	}
	return a.AMSender.AMBcopy(id, p)
}

// corruptPacker changes the last byte of a message of 512 bytes or more.
type corruptPacker struct{ uct.Packer }

func (k *corruptPacker) Pack(dst []byte) int {
	n := k.Packer.Pack(dst)
	if n >= 512 {
		dst[n-1]++
	}
	return n
}

// lazyPut keeps one put back until the next put or flush.
type lazyPut struct {
	uct.Putter
	uct.EP
	kind Kind
	send func() error
}

func newLazyPut(k Kind, e *wrap.EP) {
	p := &lazyPut{Putter: e.Has.Put, EP: e.EP, kind: k}
	e.Has.Put, e.EP = lazyPutter{p}, lazyEP{p}
}

type (
	lazyPutter struct{ *lazyPut }
	lazyEP     struct{ *lazyPut }
)

// let does the put that was kept back.
func (p *lazyPut) let() error {
	if p.send == nil {
		return nil
	}
	err := p.send()
	if err != uct.ErrNoResource {
		p.send = nil
	}
	return err
}

func (p lazyPutter) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if err := p.let(); err != nil {
		return err
	}
	data := append([]byte{}, buf...)
	p.send = func() error { return p.Putter.PutShort(data, raddr, key) }
	return nil
}

func (p lazyPutter) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if err := p.let(); err != nil {
		return err
	}
	return p.Putter.PutBcopy(buf, raddr, key)
}

func (p lazyPutter) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if p.kind == FenceLong { // what was kept back follows with the next operation
		return p.Putter.PutZcopy(iov, raddr, key, c)
	}
	if err := p.let(); err != nil {
		return false, err
	}
	return p.Putter.PutZcopy(iov, raddr, key, c)
}

func (p lazyEP) Flush(c *uct.Completion) (bool, error) {
	if err := p.let(); err != nil {
		return false, err
	}
	return p.EP.Flush(c)
}

// tearingAtomics makes a fetching addition of a read and a write.
type tearingAtomics struct {
	uct.Atomics
	e *wrap.EP
}

func (a *tearingAtomics) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if op != uct.AtomicAdd || c == nil {
		return a.Atomics.AtomicFetch(op, size, value, result, raddr, key, c)
	}
	write := func(h *hook) {
		sum := op.Apply(size, *result, 0, value)
		b := binary.NativeEndian.AppendUint64(nil, sum)
		if size == 4 {
			b = binary.NativeEndian.AppendUint32(nil, uint32(sum))
		}
		later(a.e, func() error {
			err := a.e.Has.Put.PutShort(b, raddr, key)
			if err != uct.ErrNoResource {
				h.fire()
			}
			return err
		})
	}
	return a.Atomics.AtomicFetch(op, size, 0, result, raddr, key, hooked(c, write))
}

// roundingAtomics aligns addresses.
type roundingAtomics struct{ uct.Atomics }

func (a *roundingAtomics) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if size > 0 {
		raddr -= raddr % uint64(size)
	}
	return a.Atomics.AtomicPost(op, size, value, raddr, key)
}

// refusingPut claims bcopy and refuses it.
type refusingPut struct{ uct.Putter }

func (refusingPut) PutBcopy([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// modestIface does not claim get short, which its EPs have.
type modestIface struct {
	uct.Iface
	attr *uct.IfaceAttr
}

func modest(i uct.Iface) *uct.IfaceAttr {
	a := *i.Attr()
	a.Caps &^= uct.CapGetShort
	a.Get.MaxShort = 0
	return &a
}

func (i *modestIface) Attr() *uct.IfaceAttr { return i.attr }

// leakingIface hands out descriptors whose Release does nothing.
type leakingIface struct{ uct.Iface }

func (i *leakingIface) SetAMHandler(id uint8, h uct.AMHandler) error {
	if h == nil {
		return i.Iface.SetAMHandler(id, nil)
	}
	return i.Iface.SetAMHandler(id, uct.AMHandlerFunc(func(data []byte, desc uct.Desc) bool {
		if desc == nil {
			return h.HandleAM(data, nil)
		}
		return h.HandleAM(data, leakedDesc{desc})
	}))
}

type leakedDesc struct{ uct.Desc }

func (leakedDesc) Release() {}

// trustingAddresser takes every address for a good one.
type trustingAddresser struct{ uct.IfaceAddresser }

func (trustingAddresser) Reachable([]byte, []byte) (bool, string) { return true, "" }

// trustingUnpacker takes any bytes for a key.
type trustingUnpacker struct{ uct.RKeyUnpacker }

func (u *trustingUnpacker) UnpackRKey(b []byte) (uct.RKey, error) {
	key, err := u.RKeyUnpacker.UnpackRKey(b)
	if err != nil && len(b) >= 8 {
		return uct.RKey(binary.LittleEndian.Uint64(b)), nil
	}
	return key, err
}

// carelessMD says that it is closed when it is not.
type carelessMD struct{ uct.MD }

func (m *carelessMD) Close() error {
	_ = m.MD.Close() // refused while it is in use
	return nil
}

// alwaysArmed says that the iface is still armed.
type alwaysArmed struct{}

func (alwaysArmed) StillArmed() bool { return true }

// sleepyWaker forgets to arm every third time.
type sleepyWaker struct {
	uct.Waker
	n int
}

func (w *sleepyWaker) Arm(ev uct.Events) error {
	if w.n++; w.n%3 == 0 {
		return nil
	}
	return w.Waker.Arm(ev)
}
