package broken

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// held is a list of posts that a broken transport executes later, in Progress.
type held struct{ jobs []func() error }

// retry executes jobs in order until one returns ErrNoResource.
func (h *held) retry() {
	for len(h.jobs) > 0 && h.jobs[0]() != uct.ErrNoResource {
		h.jobs = h.jobs[1:]
	}
}

// retryingIface executes held jobs in Progress.
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

// later queues job for the next Progress of e's iface.
func later(e *wrap.EP, job func() error) {
	h := &e.On.Iface.(*retryingIface).held
	h.jobs = append(h.jobs, job)
}

// badEvery is the interval of spoiled operations: every 13th operation is spoiled.
const badEvery = 13

// badAM drops, duplicates, reorders, truncates, misdirects or corrupts messages.
type badAM struct {
	uct.AMSender
	fault Fault
	e     *wrap.EP
	n     int
}

func newBadAM(k Fault, e *wrap.EP) *badAM { return &badAM{AMSender: e.Has.AM, fault: k, e: e} }

func (a *badAM) AMShort(id uint8, hdr uint64, payload []byte) error {
	a.n++
	bad := a.n%badEvery == 0
	send := a.AMSender.AMShort
	switch {
	case a.fault == Truncate:
		if limit := a.e.On.Attr().AM.MaxShort - 8; len(payload) > limit {
			payload = payload[:limit]
		}
	case a.fault == WrongID && bad && id <= uct.MaxAMID:
		id ^= 1
	case a.fault == KeepBuffer:
		later(a.e, func() error { return send(id, hdr, payload) })
		return nil
	case a.fault == Drop && bad:
		return nil
	case a.fault == Duplicate && bad:
		if err := send(id, hdr, payload); err != nil {
			return err
		}
	case a.fault == Reorder && bad:
		data := append([]byte{}, payload...)
		later(a.e, func() error { return send(id, hdr, data) })
		return nil
	}
	return send(id, hdr, payload)
}

func (a *badAM) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if a.fault == Corrupt {
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

// lazyPut delays each short put until the next put or flush.
type lazyPut struct {
	uct.Putter
	uct.EP
	fault Fault
	send  func() error
}

func newLazyPut(k Fault, e *wrap.EP) {
	p := &lazyPut{Putter: e.Has.Put, EP: e.EP, fault: k}
	e.Has.Put, e.EP = lazyPutter{p}, lazyEP{p}
}

type (
	lazyPutter struct{ *lazyPut }
	lazyEP     struct{ *lazyPut }
)

// postDelayed posts the delayed put. Error: ErrNoResource; the put then remains delayed.
func (p *lazyPut) postDelayed() error {
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
	if err := p.postDelayed(); err != nil {
		return err
	}
	data := append([]byte{}, buf...)
	p.send = func() error { return p.Putter.PutShort(data, raddr, key) }
	return nil
}

func (p lazyPutter) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if err := p.postDelayed(); err != nil {
		return err
	}
	return p.Putter.PutBcopy(buf, raddr, key)
}

func (p lazyPutter) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if p.fault == FenceLong { // the delayed put follows with the next operation
		return p.Putter.PutZcopy(iov, raddr, key, c)
	}
	if err := p.postDelayed(); err != nil {
		return false, err
	}
	return p.Putter.PutZcopy(iov, raddr, key, c)
}

func (p lazyEP) Flush(c *uct.Completion) (bool, error) {
	if err := p.postDelayed(); err != nil {
		return false, err
	}
	return p.EP.Flush(c)
}

// tearingAtomics executes a fetch-and-add as a read and a later write.
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

// roundingAtomics rounds addresses down to the size of the operand.
type roundingAtomics struct{ uct.Atomics }

func (a *roundingAtomics) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if size > 0 {
		raddr -= raddr % uint64(size)
	}
	return a.Atomics.AtomicPost(op, size, value, raddr, key)
}

// refusingPut returns ErrUnsupported from PutBcopy.
type refusingPut struct{ uct.Putter }

func (refusingPut) PutBcopy([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// modestIface has other attributes than its EPs implement.
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

// leakingIface passes descriptors to handlers whose Release does nothing.
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

// trustingAddresser reports every address as reachable.
type trustingAddresser struct{ uct.IfaceAddresser }

func (trustingAddresser) Reachable([]byte, []byte) (bool, string) { return true, "" }

// trustingUnpacker accepts any 8 or more bytes as a key.
type trustingUnpacker struct{ uct.RKeyUnpacker }

func (u *trustingUnpacker) UnpackRKey(b []byte) (uct.RKey, error) {
	key, err := u.RKeyUnpacker.UnpackRKey(b)
	if err != nil && len(b) >= 8 {
		return uct.RKey(binary.LittleEndian.Uint64(b)), nil
	}
	return key, err
}

// carelessMD returns nil from Close even if the domain is in use.
type carelessMD struct{ uct.MD }

func (m *carelessMD) Close() error {
	_ = m.MD.Close() // an error while the domain is in use
	return nil
}

// alwaysArmed returns true from StillArmed.
type alwaysArmed struct{}

func (alwaysArmed) StillArmed() bool { return true }

// sleepyWaker does not arm in every third call of Arm.
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
