package ucp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// fakeEP is an endpoint of a fakeIface.
type fakeEP struct {
	base.NoAMShort
	base.NoAMZcopy
	i        *fakeIface
	id       int
	peer     *fakeIface // nil until connected
	q        base.PendingQueue
	inflight int
	status   uct.Status // the reason of its failure
	closed   bool
	fenced   bool // posts wait until nothing is in flight
	dialing  bool
	up       bool
}

func (e *fakeEP) EPAddr(b []byte) []byte { return append(b, byte(e.i.index), byte(e.id)) }

func (e *fakeEP) Connect(_, ep []byte) error {
	if err := e.i.f.failing("connect " + e.i.kind.name); err != nil {
		return err
	}
	e.i.f.mu.Lock()
	defer e.i.f.mu.Unlock()
	if len(ep) != 2 || int(ep[0]) >= len(e.i.f.ifaces) {
		return uct.ErrInvalidAddr
	}
	e.peer = e.i.f.ifaces[ep[0]]
	return nil
}

// checkPeer fails an endpoint whose peer has died.
func (e *fakeEP) checkPeer() int {
	e.i.f.mu.Lock()
	gone := e.peer != nil && e.peer.dead && e.status == 0 && !e.closed && !e.i.kind.silent
	e.i.f.mu.Unlock()
	if !gone {
		return 0
	}
	e.fail(ucs.StatusConnReset)
	return 1
}

func (e *fakeEP) fail(st uct.Status) {
	if e.status != 0 || e.closed {
		return
	}
	e.status = st
	if e.i.onError != nil {
		e.i.onError(e, fmt.Errorf("fake: %w", st.Err()))
	}
}

// dialed completes a dial.
func (e *fakeEP) dialed() int {
	if !e.dialing || e.up {
		return 0
	}
	e.dialing, e.up = false, true
	if err := cmp.Or(e.i.f.failing("dial "+e.i.kind.name), e.i.f.dead[e.i.kind.name]); err != nil {
		e.fail(statusOf(err))
	}
	return 1
}

// ready reports whether an operation may be posted.
func (e *fakeEP) ready() error {
	switch {
	case e.status != 0 || e.closed:
		return uct.ErrEPFailed
	case e.i.kind.dials && !e.up:
		e.dialing = true
		return uct.ErrNoResource
	case e.i.stuck || e.q.Blocks() || e.inflightOfIface() >= e.i.kind.depth || e.fenced && e.inflight > 0:
		return uct.ErrNoResource
	}
	e.fenced = false
	return nil
}

func (e *fakeEP) inflightOfIface() (n int) {
	e.i.f.mu.Lock()
	defer e.i.f.mu.Unlock()
	return len(e.i.posted)
}

func (e *fakeEP) post(o fakeOp) error {
	if e.i.posting != nil {
		e.i.posting()
	}
	if err := e.ready(); err != nil {
		return err
	}
	o.ep = e
	e.inflight++
	e.i.f.mu.Lock()
	e.i.posted = append(e.i.posted, o)
	e.i.event()
	e.i.f.mu.Unlock()
	return nil
}

// execute executes the operation on the memory of the target.
func (o *fakeOp) execute() uct.Status {
	f := o.ep.i.f
	if o.ep.peer == nil || o.ep.peer.dead {
		return ucs.StatusConnReset
	}
	need := map[fakeDoes]uct.Access{fakePut: uct.AccessRemoteWrite, fakeGet: uct.AccessRemoteRead, fakeFetch: uct.AccessRemoteAtomic}[o.kind]
	if o.kind == fakeFlush {
		return 0
	}
	if o.kind == fakeSend {
		f.sent++
		o.ep.peer.rx = append(o.ep.peer.rx, o.msg)
		o.ep.peer.event()
		return 0
	}
	mem := f.reach(o.key, o.addr, o.n, need)
	if mem == nil {
		return ucs.StatusRemoteAccess
	}
	switch o.kind {
	case fakePut:
		if o.ep.i.loses {
			o.ep.i.lost += o.n
			return 0
		}
		o.ep.i.moved += copy(mem, o.src)
	case fakeGet:
		o.ep.i.moved += copy(o.dst, mem)
	default:
		o.atomic(mem)
	}
	return 0
}

func (o *fakeOp) atomic(mem []byte) {
	le := binary.LittleEndian
	var old uint64
	if o.size == 4 {
		old = uint64(le.Uint32(mem))
		le.PutUint32(mem, uint32(o.op.Apply(4, old, o.compare, o.value)))
	} else {
		old = le.Uint64(mem)
		le.PutUint64(mem, o.op.Apply(8, old, o.compare, o.value))
	}
	if o.result != nil {
		*o.result = old
	}
}

func (e *fakeEP) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if err := e.ready(); err != nil {
		return 0, err
	}
	buf := make([]byte, fakeBcopyM)
	n := p.Pack(buf)
	return n, e.post(fakeOp{kind: fakeSend, msg: fakeMsg{id, buf[:n]}})
}

// PutShort executes at once, as transports over memory do.
func (e *fakeEP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if err := e.ready(); err != nil {
		return err
	}
	o := fakeOp{ep: e, kind: fakePut, src: buf, n: len(buf), addr: raddr, key: key}
	e.i.f.mu.Lock()
	st := o.execute()
	e.i.f.mu.Unlock()
	if st != 0 {
		e.fail(st) // reported later, as by hardware
	}
	return nil
}

func (e *fakeEP) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if err := e.ready(); err != nil {
		return err
	}
	return e.post(fakeOp{kind: fakePut, src: slices.Clone(buf), n: len(buf), addr: raddr, key: key})
}

func (e *fakeEP) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b := iov[0].Buf
	err := e.post(fakeOp{kind: fakePut, src: b, n: len(b), addr: raddr, key: key, comp: c})
	return err == nil, err
}

func (e *fakeEP) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if err := e.ready(); err != nil {
		return err
	}
	e.i.f.mu.Lock()
	defer e.i.f.mu.Unlock()
	mem := e.i.f.reach(key, raddr, len(buf), uct.AccessRemoteRead)
	if mem == nil {
		return ucs.ErrRemoteAccess
	}
	copy(buf, mem)
	return nil
}

func (e *fakeEP) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	err := e.post(fakeOp{kind: fakeGet, dst: buf, n: len(buf), addr: raddr, key: key, comp: c})
	return err == nil, err
}

func (e *fakeEP) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b := iov[0].Buf
	err := e.post(fakeOp{kind: fakeGet, dst: b, n: len(b), addr: raddr, key: key, comp: c})
	return err == nil, err
}

// Ops has the classes of the kind.
func (e *fakeEP) Ops() *uct.Ops {
	caps, ops := e.i.kind.caps, &uct.Ops{}
	if caps&uct.CapAM != 0 {
		ops.AM = e
	}
	if caps&uct.CapPut != 0 {
		ops.Put = e
	}
	if caps&uct.CapGet != 0 {
		ops.Get = e
	}
	if caps&uct.CapAtomic != 0 {
		ops.Atomics = e
	}
	if caps.Has(uct.CapConnectEP) {
		ops.Connect = e
	}
	if e.i.kind.silent {
		ops.Check = e
	}
	return ops
}

func (e *fakeEP) atomicOps(size int) (post, fetch uct.AtomicOps) {
	a := &e.i.kind.atomic
	if size == 4 {
		return a.Post32, a.Fetch32
	}
	return a.Post64, a.Fetch64
}

func (e *fakeEP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if post, _ := e.atomicOps(size); !post.Has(op) {
		return uct.ErrUnsupported
	}
	return e.post(fakeOp{kind: fakeFetch, op: op, size: size, n: size, value: value, addr: raddr, key: key})
}

func (e *fakeEP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if _, fetch := e.atomicOps(size); !fetch.Has(op) {
		return false, uct.ErrUnsupported
	}
	err := e.post(fakeOp{kind: fakeFetch, op: op, size: size, n: size, value: value, addr: raddr, key: key, result: result, comp: c})
	return err == nil, err
}

func (e *fakeEP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if _, fetch := e.atomicOps(size); !fetch.Has(uct.AtomicCSwap) {
		return false, uct.ErrUnsupported
	}
	err := e.post(fakeOp{kind: fakeFetch, op: uct.AtomicCSwap, size: size, n: size, compare: compare, value: swap, addr: raddr, key: key, result: result, comp: c})
	return err == nil, err
}

func (e *fakeEP) Flush(c *uct.Completion) (bool, error) {
	e.i.f.flushes.Add(1)
	if e.i.posting != nil {
		e.i.posting()
	}
	if e.status != 0 || e.closed {
		return false, uct.ErrEPFailed
	}
	if e.i.stuck || e.i.noFlush {
		return false, uct.ErrNoResource
	}
	if e.inflight == 0 && !e.i.unacked {
		return false, nil
	}
	if c == nil {
		return true, nil
	}
	// The next Progress completes everything in flight, so a no-op after it is a flush.
	return true, e.post1(fakeOp{kind: fakeFlush, comp: c})
}

// Check is a flush without operations.
func (e *fakeEP) Check(c *uct.Completion) (bool, error) {
	e.i.f.checks++
	if e.status != 0 || e.closed {
		return false, uct.ErrEPFailed
	}
	return true, e.post1(fakeOp{kind: fakeFlush, comp: c})
}

// post1 posts regardless of the depth.
func (e *fakeEP) post1(o fakeOp) error {
	o.ep = e
	e.inflight++
	e.i.f.mu.Lock()
	e.i.posted = append(e.i.posted, o)
	e.i.f.mu.Unlock()
	return nil
}

func (e *fakeEP) Fence() error {
	e.fenced = true
	return nil
}

func (e *fakeEP) AddPending(r *uct.PendingReq) error {
	if err := e.ready(); err != uct.ErrNoResource && !e.q.Blocks() && !e.i.noFlush {
		if err == nil {
			return uct.ErrBusy
		}
		return err
	}
	return e.i.arb.Add(&e.q, r)
}

func (e *fakeEP) PurgePending(f func(*uct.PendingReq)) { e.i.arb.Purge(&e.q, f) }

func (e *fakeEP) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.i.eps = slices.DeleteFunc(e.i.eps, func(x *fakeEP) bool { return x == e })
	if err := e.i.f.failing("close " + e.i.kind.name); err != nil {
		return err
	}
	if e.i.kind.late {
		return nil
	}
	e.i.f.mu.Lock()
	var mine, rest []fakeOp
	for _, o := range e.i.posted {
		if o.ep == e {
			mine = append(mine, o)
		} else {
			rest = append(rest, o)
		}
	}
	e.i.posted = rest
	e.i.f.mu.Unlock()
	for _, o := range mine {
		if o.comp != nil {
			o.comp.Complete(ucs.StatusCanceled)
		}
	}
	return nil
}
