package instr

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// uctRig counts calls of the uct contract on one transport.
type uctRig struct {
	tl     string
	iface  uct.Iface
	peer   uct.Iface // of the far end
	ep     uct.EP
	am     messages
	put    uct.Putter
	get    uct.Getter
	atomic uct.Atomics
	near   uct.Mem
	buf    []byte     // size bytes of near
	iov    [1]uct.IOV // of buf
	far    uct.Mem
	raddr  uint64
	key    uct.RKey
	size   int    // of the case
	word   uint64 // result of atomics
	comp   uct.Completion
	done   bool // comp has fired
	undo   cleanup.Stack
}

// openUCT opens the rig over a transport; "" is the default one.
func openUCT(fabric, tl string) (_ rig, err error) {
	if tl == "" {
		tl = transports[0]
	}
	r := &uctRig{tl: tl}
	r.comp.Func = func(*uct.Completion) { r.done = true }
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undo.Run())
		}
	}()
	mds := make([]uct.MD, ends(fabric, tl))
	for i := range mds {
		if mds[i], err = r.openMD(fabric); err != nil {
			return nil, err
		}
	}
	if r.near, err = r.alloc(mds[0]); err != nil {
		return nil, err
	}
	if r.far, err = r.alloc(mds[len(mds)-1]); err != nil {
		return nil, err
	}
	if err = r.unpack(mds[0]); err != nil {
		return nil, err
	}
	return r, r.connect(mds[0], mds[len(mds)-1])
}

// openMD opens the memory domain of a new device.
func (r *uctRig) openMD(fabric string) (uct.MD, error) {
	dev, err := device(fabric)
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	component, name := ib.New(list, rc.Transport(rc.Config{}), dv.RC(dv.RCConfig{}),
		ud.Transport(ud.Config{}), dv.UD(dv.UDConfig{})), dev.Name()
	if open := deviceless[r.tl]; open != nil {
		component, name = open(), r.tl
	}
	md, err := component.OpenMD(name)
	if err != nil {
		return nil, err
	}
	r.undo.Add(md.Close)
	return md, nil
}

// alloc takes memory from the domain, which peers reach best.
func (r *uctRig) alloc(md uct.MD) (uct.Mem, error) {
	a := md.Ext().Alloc
	if a == nil {
		return nil, fmt.Errorf("memory of %s: %w", md.Attr().Name, errors.ErrUnsupported)
	}
	mem, err := a.Alloc(maxSize, uct.AccessAll)
	if err != nil {
		return nil, err
	}
	r.undo.Add(mem.Close)
	return mem, nil
}

// unpack makes the key of the far memory.
func (r *uctRig) unpack(md uct.MD) error {
	packed, err := r.far.PackRKey(nil)
	if err != nil {
		return err
	}
	u := md.Ext().Keys
	if u == nil {
		return fmt.Errorf("keys of %s: %w", md.Attr().Name, errors.ErrUnsupported)
	}
	if r.key, err = u.UnpackRKey(packed); err != nil {
		return err
	}
	r.raddr = r.far.Addr()
	return nil
}

// connect opens an iface with an EP at both ends and joins them.
func (r *uctRig) connect(near, far uct.MD) (err error) {
	if r.iface, err = r.openIface(near); err != nil {
		return err
	}
	if r.peer = r.iface; !loops(r.tl) {
		if r.peer, err = r.openIface(far); err != nil {
			return err
		}
	}
	if r.iface.Attr().Caps.Has(uct.CapConnectEP) {
		err = r.connectEPs()
	} else {
		r.ep, err = r.newEP(r.iface, r.peer)
	}
	if err != nil {
		return err
	}
	ops := r.ep.Ops()
	r.put, r.get, r.atomic, r.am.sender = ops.Put, ops.Get, ops.Atomics, ops.AM
	return r.am.open(r)
}

// connectEPs makes an EP at each end and joins them.
func (r *uctRig) connectEPs() (err error) {
	if r.ep, err = r.newEP(r.iface, nil); err != nil {
		return err
	}
	peer, err := r.newEP(r.peer, nil)
	if err != nil {
		return err
	}
	return errors.Join(join(r.ep, r.peer, peer), join(peer, r.iface, r.ep))
}

func (r *uctRig) openIface(md uct.MD) (uct.Iface, error) {
	res, err := md.Resources()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(res, func(u uct.Resource) bool { return u.Transport == r.tl })
	if i < 0 {
		return nil, fmt.Errorf("transport %s on %s: %w", r.tl, md.Attr().Name, errors.ErrUnsupported)
	}
	iface, err := md.OpenIface(uct.IfaceParams{Transport: res[i].Transport, Device: res[i].Device})
	if err != nil {
		return nil, err
	}
	r.undo.Add(iface.Close)
	return iface, nil
}

// newEP makes an EP to the iface to; nil leaves it unconnected.
func (r *uctRig) newEP(iface, to uct.Iface) (uct.EP, error) {
	var p uct.EPParams
	if to != nil {
		a := to.Ext().Address
		if a == nil {
			return nil, fmt.Errorf("addresses of %s: %w", r.tl, errors.ErrUnsupported)
		}
		p.DeviceAddr, p.IfaceAddr = a.DeviceAddr(nil), a.IfaceAddr(nil)
	}
	ep, err := iface.NewEP(p)
	if err != nil {
		return nil, err
	}
	r.undo.Add(ep.Close)
	return ep, nil
}

// join connects ep to peer, an EP of iface.
func join(ep uct.EP, iface uct.Iface, peer uct.EP) error {
	c, p, a := ep.Ops().Connect, peer.Ops().Connect, iface.Ext().Address
	if c == nil || p == nil || a == nil {
		return fmt.Errorf("connecting endpoints of %s: %w", iface.Attr().Resource.Transport, errors.ErrUnsupported)
	}
	return c.Connect(a.DeviceAddr(nil), p.EPAddr(nil))
}

// Close implements rig.
func (r *uctRig) Close() error { return r.undo.Run() }

// steps implements rig. Puts are short or bcopy and gets bcopy, as UCP does them
// for memory that it knows nothing of.
func (r *uctRig) steps(c Case) (steps, error) {
	r.size = c.Size
	r.buf = r.near.Bytes()[:r.size]
	r.iov[0] = uct.IOV{Buf: r.buf, Mem: r.near}
	limit := r.iface.Attr()
	switch {
	case c.Op.message():
		return r.am.steps(r, c)
	case c.Op == Idle:
		return steps{op: func() error { return want(r.iface.Progress(), 0) }}, nil
	case r.put == nil || r.get == nil || r.atomic == nil:
		return steps{}, fmt.Errorf("%s has messages only: %w", r.tl, unsupported(c))
	case c.Size > limit.Put.MaxBcopy || c.Size > limit.Get.MaxBcopy:
		return steps{}, fmt.Errorf("longer than a bcopy: %w", unsupported(c))
	}
	switch c.Op {
	case Put:
		return steps{before: r.change, op: r.putter(), after: r.verifyPut}, nil
	case Get:
		return steps{before: r.change, op: r.postGet, after: r.verifyGet}, nil
	case PutZcopy:
		return steps{before: r.change, op: r.putZcopy, after: r.verifyGet}, nil
	case GetZcopy:
		return steps{before: r.change, op: r.getZcopy, after: r.verifyGet}, nil
	case PutWindow:
		return steps{before: r.change, op: r.window(r.putZcopy), after: r.compare}, nil
	case GetWindow:
		return steps{before: r.change, op: r.window(r.getZcopy), after: r.compare}, nil
	case FAddWindow:
		return steps{before: r.arm, op: r.window(r.postFetchAdd)}, nil
	case Add:
		return steps{op: func() error {
			return r.atomic.AtomicPost(uct.AtomicAdd, wordLen, 1, r.raddr, r.key)
		}, after: r.flush}, nil
	case FAdd:
		return steps{before: r.arm, op: r.postFetchAdd, after: r.wait}, nil
	case Flush:
		return steps{before: r.putter(), op: r.flush}, nil
	case Busy:
		if deviceless[r.tl] != nil {
			return steps{}, fmt.Errorf("no put has a completion later: %w", unsupported(c))
		}
		return steps{before: r.putAndArm(r.putter()), op: r.progressOnce, after: r.wait}, nil
	}
	return steps{}, unsupported(c)
}

// putter is the put of the case's size.
func (r *uctRig) putter() func() error {
	buf := r.buf
	if r.size <= r.iface.Attr().Put.MaxShort {
		return func() error { return r.put.PutShort(buf, r.raddr, r.key) }
	}
	return func() error { return r.put.PutBcopy(buf, r.raddr, r.key) }
}

func (r *uctRig) putZcopy() error {
	pending, err := r.put.PutZcopy(r.iov[:], r.raddr, r.key, &r.comp)
	r.done = !pending
	return err
}

func (r *uctRig) getZcopy() error {
	pending, err := r.get.GetZcopy(r.iov[:], r.raddr, r.key, &r.comp)
	r.done = !pending
	return err
}

// Pack implements uct.Packer.
func (r *uctRig) Pack(dst []byte) int { return copy(dst, r.near.Bytes()[:r.size]) }

func (r *uctRig) change() error {
	change(r.near.Bytes(), r.far.Bytes())
	return r.arm()
}

// arm makes comp ready for one operation.
func (r *uctRig) arm() error {
	r.done, r.comp.Count, r.comp.Status = false, 1, 0
	return nil
}

func (r *uctRig) postGet() error {
	pending, err := r.get.GetBcopy(r.buf, r.raddr, r.key, &r.comp)
	r.done = !pending
	return err
}

func (r *uctRig) postFetchAdd() error {
	pending, err := r.atomic.AtomicFetch(uct.AtomicAdd, wordLen, 1, &r.word, r.raddr, r.key, &r.comp)
	r.done = !pending
	return err
}

// window posts a window of operations that comp counts, and polls the EP until it is flushed,
// which is what a caller without anything else to do does.
func (r *uctRig) window(post func() error) func() error {
	return func() error {
		r.comp.Count = windowLen
		for range windowLen {
			if err := post(); err != nil {
				return err
			}
			if r.done { // at once
				r.comp.Count--
			}
		}
		for range polls {
			pending, err := r.ep.Flush(nil)
			if err != nil || !pending {
				return errors.Join(err, want(r.comp.Count, 0), r.comp.Status.Err())
			}
			if r.iface.Progress() == 0 {
				runtime.Gosched()
			}
		}
		return errStuck
	}
}

// flush waits for the remote completion of everything posted.
func (r *uctRig) flush() error {
	if err := r.arm(); err != nil {
		return err
	}
	pending, err := r.ep.Flush(&r.comp)
	if err != nil || !pending {
		return err
	}
	return r.wait()
}

// wait progresses until comp has fired.
func (r *uctRig) wait() error {
	for range polls {
		if r.done {
			return r.comp.Status.Err()
		}
		if r.iface.Progress() == 0 {
			runtime.Gosched()
		}
	}
	return errStuck
}

// putAndArm posts a put and a flush, whose completion is then waiting.
func (r *uctRig) putAndArm(put func() error) func() error {
	return func() error {
		if err := errors.Join(put(), r.arm()); err != nil {
			return err
		}
		pending, err := r.ep.Flush(&r.comp)
		if err == nil && !pending {
			return errVoid
		}
		return err
	}
}

func (r *uctRig) progressOnce() error {
	r.iface.Progress()
	if !r.done {
		return errVoid
	}
	return nil
}

// progress progresses both ends, and lets others run if nothing was to do.
func (r *uctRig) progress() int {
	n := r.iface.Progress() + r.peer.Progress()
	if n == 0 {
		runtime.Gosched()
	}
	return n
}

func (r *uctRig) verifyPut() error { return errors.Join(r.flush(), r.compare()) }

func (r *uctRig) verifyGet() error { return errors.Join(r.wait(), r.compare()) }

func (r *uctRig) compare() error {
	if !bytes.Equal(r.near.Bytes()[:r.size], r.far.Bytes()[:r.size]) {
		return errCorrupt
	}
	return nil
}
