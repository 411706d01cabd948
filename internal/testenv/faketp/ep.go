package faketp

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// EP is an endpoint of an Iface.
type EP struct {
	base.NoAMShort
	base.NoAMZcopy
	Iface    *Iface
	id       int
	Peer     *Iface // nil until connected
	Queue    base.PendingQueue
	InFlight int
	Status   uct.Status // the reason of its failure
	closed   bool
	fenced   bool // posts wait until nothing is in flight
	dialing  bool
	up       bool
}

func (e *EP) EPAddr(b []byte) []byte { return append(b, byte(e.Iface.index), byte(e.id)) }

func (e *EP) Connect(_, ep []byte) error {
	if err := e.Iface.Fabric.failing("connect " + e.Iface.Kind.Name); err != nil {
		return err
	}
	e.Iface.Fabric.Mu.Lock()
	defer e.Iface.Fabric.Mu.Unlock()
	if len(ep) != 2 || int(ep[0]) >= len(e.Iface.Fabric.Ifaces) {
		return uct.ErrInvalidAddr
	}
	e.Peer = e.Iface.Fabric.Ifaces[ep[0]]
	return nil
}

// checkPeer fails an endpoint whose peer has died.
func (e *EP) checkPeer() int {
	e.Iface.Fabric.Mu.Lock()
	gone := e.Peer != nil && e.Peer.dead && e.Status == 0 && !e.closed && !e.Iface.Kind.Silent
	e.Iface.Fabric.Mu.Unlock()
	if !gone {
		return 0
	}
	e.Fail(ucs.StatusConnReset)
	return 1
}

func (e *EP) Fail(st uct.Status) {
	if e.Status != 0 || e.closed {
		return
	}
	e.Status = st
	if e.Iface.OnError != nil {
		e.Iface.OnError(e, fmt.Errorf("fake: %w", st.Err()))
	}
}

// dialed completes a dial.
func (e *EP) dialed() int {
	if !e.dialing || e.up {
		return 0
	}
	e.dialing, e.up = false, true
	if err := cmp.Or(e.Iface.Fabric.failing("dial "+e.Iface.Kind.Name), e.Iface.Fabric.Dead[e.Iface.Kind.Name]); err != nil {
		e.Fail(faultStatus(err))
	}
	return 1
}

// faultStatus returns the status of an error: the one whose error err wraps.
func faultStatus(err error) uct.Status {
	for st := ucs.StatusInProgress; st <= ucs.StatusStreamEnded; st++ {
		if errors.Is(err, st.Err()) {
			return st
		}
	}
	return ucs.StatusInternal
}

// ready reports whether an operation may be posted.
func (e *EP) ready() error {
	switch {
	case e.Status != 0 || e.closed:
		return uct.ErrEPFailed
	case e.Iface.Kind.Dials && !e.up:
		e.dialing = true
		return uct.ErrNoResource
	case e.Iface.Stuck || e.Queue.Blocks() || e.inflightOfIface() >= e.Iface.Kind.Depth || e.fenced && e.InFlight > 0:
		return uct.ErrNoResource
	}
	e.fenced = false
	return nil
}

func (e *EP) inflightOfIface() (n int) {
	e.Iface.Fabric.Mu.Lock()
	defer e.Iface.Fabric.Mu.Unlock()
	return len(e.Iface.posted)
}

func (e *EP) post(o operation) error {
	if e.Iface.Posting != nil {
		e.Iface.Posting()
	}
	if err := e.ready(); err != nil {
		return err
	}
	o.ep = e
	e.InFlight++
	e.Iface.Fabric.Mu.Lock()
	e.Iface.posted = append(e.Iface.posted, o)
	e.Iface.event()
	e.Iface.Fabric.Mu.Unlock()
	return nil
}

// execute executes the operation on the memory of the target.
func (o *operation) execute() uct.Status {
	f := o.ep.Iface.Fabric
	if o.ep.Peer == nil || o.ep.Peer.dead {
		return ucs.StatusConnReset
	}
	need := map[opClass]uct.Access{opPut: uct.AccessRemoteWrite, opGet: uct.AccessRemoteRead, opFetch: uct.AccessRemoteAtomic}[o.kind]
	if o.kind == opFlush {
		return 0
	}
	if o.kind == opSend {
		f.Sent++
		o.ep.Peer.Received = append(o.ep.Peer.Received, o.msg)
		o.ep.Peer.event()
		return 0
	}
	mem := f.reach(o.key, o.addr, o.n, need)
	if mem == nil {
		return ucs.StatusRemoteAccess
	}
	switch o.kind {
	case opPut:
		if o.ep.Iface.Loses {
			o.ep.Iface.Lost += o.n
			return 0
		}
		o.ep.Iface.Moved += copy(mem, o.src)
	case opGet:
		o.ep.Iface.Moved += copy(o.dst, mem)
	default:
		o.atomic(mem)
	}
	return 0
}

func (o *operation) atomic(mem []byte) {
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

func (e *EP) AMBcopy(id uint8, p uct.Packer) (int, error) {
	if err := e.ready(); err != nil {
		return 0, err
	}
	buf := make([]byte, MaxAM)
	n := p.Pack(buf)
	return n, e.post(operation{kind: opSend, msg: message{id, buf[:n]}})
}

// PutShort executes at once, as transports over memory do.
func (e *EP) PutShort(buf []byte, raddr uint64, key uct.RKey) error {
	if err := e.ready(); err != nil {
		return err
	}
	o := operation{ep: e, kind: opPut, src: buf, n: len(buf), addr: raddr, key: key}
	e.Iface.Fabric.Mu.Lock()
	st := o.execute()
	e.Iface.Fabric.Mu.Unlock()
	if st != 0 {
		e.Fail(st) // reported later, as by hardware
	}
	return nil
}

func (e *EP) PutBcopy(buf []byte, raddr uint64, key uct.RKey) error {
	if err := e.ready(); err != nil {
		return err
	}
	return e.post(operation{kind: opPut, src: slices.Clone(buf), n: len(buf), addr: raddr, key: key})
}

func (e *EP) PutZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b := iov[0].Buf
	err := e.post(operation{kind: opPut, src: b, n: len(b), addr: raddr, key: key, comp: c})
	return err == nil, err
}

func (e *EP) GetShort(buf []byte, raddr uint64, key uct.RKey) error {
	if err := e.ready(); err != nil {
		return err
	}
	e.Iface.Fabric.Mu.Lock()
	defer e.Iface.Fabric.Mu.Unlock()
	mem := e.Iface.Fabric.reach(key, raddr, len(buf), uct.AccessRemoteRead)
	if mem == nil {
		return ucs.ErrRemoteAccess
	}
	copy(buf, mem)
	return nil
}

func (e *EP) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	err := e.post(operation{kind: opGet, dst: buf, n: len(buf), addr: raddr, key: key, comp: c})
	return err == nil, err
}

func (e *EP) GetZcopy(iov []uct.IOV, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	b := iov[0].Buf
	err := e.post(operation{kind: opGet, dst: b, n: len(b), addr: raddr, key: key, comp: c})
	return err == nil, err
}

// Ops has the classes of the kind.
func (e *EP) Ops() *uct.Ops {
	caps, ops := e.Iface.Kind.Caps, &uct.Ops{}
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
	if e.Iface.Kind.Silent {
		ops.Check = e
	}
	return ops
}

func (e *EP) atomicOps(size int) (post, fetch uct.AtomicOps) {
	a := &e.Iface.Kind.atomic
	if size == 4 {
		return a.Post32, a.Fetch32
	}
	return a.Post64, a.Fetch64
}

func (e *EP) AtomicPost(op uct.AtomicOp, size int, value, raddr uint64, key uct.RKey) error {
	if post, _ := e.atomicOps(size); !post.Has(op) {
		return uct.ErrUnsupported
	}
	return e.post(operation{kind: opFetch, op: op, size: size, n: size, value: value, addr: raddr, key: key})
}

func (e *EP) AtomicFetch(op uct.AtomicOp, size int, value uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if _, fetch := e.atomicOps(size); !fetch.Has(op) {
		return false, uct.ErrUnsupported
	}
	err := e.post(operation{kind: opFetch, op: op, size: size, n: size, value: value, addr: raddr, key: key, result: result, comp: c})
	return err == nil, err
}

func (e *EP) AtomicCSwap(size int, compare, swap uint64, result *uint64, raddr uint64, key uct.RKey, c *uct.Completion) (bool, error) {
	if _, fetch := e.atomicOps(size); !fetch.Has(uct.AtomicCSwap) {
		return false, uct.ErrUnsupported
	}
	err := e.post(operation{kind: opFetch, op: uct.AtomicCSwap, size: size, n: size, compare: compare, value: swap, addr: raddr, key: key, result: result, comp: c})
	return err == nil, err
}

func (e *EP) Flush(c *uct.Completion) (bool, error) {
	e.Iface.Fabric.Flushes.Add(1)
	if e.Iface.Posting != nil {
		e.Iface.Posting()
	}
	if e.Status != 0 || e.closed {
		return false, uct.ErrEPFailed
	}
	if e.Iface.Stuck || e.Iface.NoFlush {
		return false, uct.ErrNoResource
	}
	if e.InFlight == 0 && !e.Iface.Unacked {
		return false, nil
	}
	if c == nil {
		return true, nil
	}
	// The next Progress completes everything in flight, so a no-op after it is a flush.
	return true, e.post1(operation{kind: opFlush, comp: c})
}

// Check is a flush without operations.
func (e *EP) Check(c *uct.Completion) (bool, error) {
	e.Iface.Fabric.Checks++
	if e.Status != 0 || e.closed {
		return false, uct.ErrEPFailed
	}
	return true, e.post1(operation{kind: opFlush, comp: c})
}

// post1 posts regardless of the depth.
func (e *EP) post1(o operation) error {
	o.ep = e
	e.InFlight++
	e.Iface.Fabric.Mu.Lock()
	e.Iface.posted = append(e.Iface.posted, o)
	e.Iface.Fabric.Mu.Unlock()
	return nil
}

func (e *EP) Fence() error {
	e.fenced = true
	return nil
}

func (e *EP) AddPending(r *uct.PendingReq) error {
	if err := e.ready(); err != uct.ErrNoResource && !e.Queue.Blocks() && !e.Iface.NoFlush {
		if err == nil {
			return uct.ErrBusy
		}
		return err
	}
	return e.Iface.arb.Add(&e.Queue, r)
}

func (e *EP) PurgePending(f func(*uct.PendingReq)) { e.Iface.arb.Purge(&e.Queue, f) }

func (e *EP) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.Iface.EPs = slices.DeleteFunc(e.Iface.EPs, func(x *EP) bool { return x == e })
	if err := e.Iface.Fabric.failing("close " + e.Iface.Kind.Name); err != nil {
		return err
	}
	if e.Iface.Kind.late {
		return nil
	}
	e.Iface.Fabric.Mu.Lock()
	var mine, rest []operation
	for _, o := range e.Iface.posted {
		if o.ep == e {
			mine = append(mine, o)
		} else {
			rest = append(rest, o)
		}
	}
	e.Iface.posted = rest
	e.Iface.Fabric.Mu.Unlock()
	for _, o := range mine {
		if o.comp != nil {
			o.comp.Complete(ucs.StatusCanceled)
		}
	}
	return nil
}
