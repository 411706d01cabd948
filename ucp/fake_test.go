package ucp

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// fabric is a small transport family in memory for the tests of ucp. Progress delivers completions, queues are tiny,
// and each transport has the capabilities that the test sets. Workers of different goroutines may use it.
type fabric struct {
	mu      sync.Mutex
	ifaces  []*fakeIface
	regions map[uint64]*fakeMem
	nextKey uint64
	eps     int          // opened so far
	sent    int          // active messages so far
	checks  int          // calls of Check
	flushes atomic.Int64 // calls of Flush, by any worker
	joins   bool         // ifaces that are opened need Push
	pushes  atomic.Int64 // calls of Push
	kinds   []fakeKind
	mdName  string
	noReg   bool
	inside  []int // processes that access the regions
	failMu  sync.Mutex
	fail    map[string]error // by "new ep fud", "connect frc": the error of the next such call
	dead    map[string]error // by kind: the error of endpoints that connect to an iface
	opened  map[string]int   // by kind: endpoints opened so far
}

// fakeKind is one transport of a fabric.
type fakeKind struct {
	name      string
	caps      uct.Caps
	atomic    uct.AtomicAttr
	depth     int // operations in flight on an iface
	latency   time.Duration
	device    string // fakes on different devices do not reach each other
	bandwidth uint64 // in bytes per second; 0 means 1e9
	class     uct.DeviceKind
	unflagged bool // events show in the descriptor only
	dials     bool // an endpoint connects at its first post, and accepts no post before
	late      bool // operations of a closed endpoint complete in Progress, or when the iface closes
	silent    bool // a dead peer is detected only by posts and Check
}

const (
	fakeShort  = 32
	fakeBcopy  = 256
	fakeZcopy  = 1 << 20
	fakeBcopyM = 2048 // active messages: large enough for a handshake message
)

var fakeAll = uct.CapAMBcopy | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapPending | uct.CapErrPeer | uct.CapErrRemoteMem | uct.CapEventFD

// likeRC connects endpoint to endpoint and has the atomics of InfiniBand.
func likeRC() fakeKind {
	return fakeKind{
		name: "frc", caps: fakeAll | uct.CapAtomic64 | uct.CapConnectEP, depth: 4, latency: time.Microsecond, late: true,
		atomic: uct.AtomicAttr{
			Post64: uct.AtomicSet(uct.AtomicAdd), Fetch64: uct.AtomicSet(uct.AtomicAdd, uct.AtomicCSwap), Domain: uct.AtomicDevice,
		},
	}
}

// likeUD has active messages and connects to an iface.
func likeUD() fakeKind {
	return fakeKind{
		name: "fud", depth: 4, latency: 2 * time.Microsecond,
		caps: uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface | uct.CapErrPeer | uct.CapEventFD,
	}
}

// likeSM has all operations and connects to an iface.
func likeSM() fakeKind {
	all := uct.AtomicSet(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap)
	k := fakeKind{name: "fsm", class: uct.DeviceShm, caps: fakeAll | uct.CapGetShort | uct.CapAtomic | uct.CapConnectIface, depth: 8}
	fetch := all | uct.AtomicSet(uct.AtomicCSwap)
	k.atomic = uct.AtomicAttr{Post32: all, Post64: all, Fetch32: fetch, Fetch64: fetch, Domain: uct.AtomicCPU}
	return k
}

// likeTCP has put and get and no atomics.
func likeTCP() fakeKind {
	k := likeSM()
	k.name, k.class, k.caps, k.atomic = "ftcp", uct.DeviceNet, k.caps&^(uct.CapAtomic|uct.CapPutShort|uct.CapGetShort), uct.AtomicAttr{}
	return k
}

func newFabric(kinds ...fakeKind) *fabric {
	return &fabric{regions: map[uint64]*fakeMem{}, kinds: kinds, mdName: "fake0", fail: map[string]error{}, dead: map[string]error{}, opened: map[string]int{}}
}

func (f *fabric) Name() string { return "fake" }

func (f *fabric) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: f.mdName}}, nil }

func (f *fabric) OpenMD(string) (uct.MD, error) { return &fakeMD{f: f}, nil }

// failNext makes the next call of that name fail.
func (f *fabric) failNext(what string, err error) {
	f.failMu.Lock()
	defer f.failMu.Unlock()
	f.fail[what] = err
}

func (f *fabric) failing(what string) error {
	f.failMu.Lock()
	defer f.failMu.Unlock()
	err := f.fail[what]
	delete(f.fail, what)
	return err
}

type fakeMD struct{ f *fabric }

func (m *fakeMD) Ext() *uct.MDExt { return &uct.MDExt{Reg: m, Keys: m} }

func (m *fakeMD) Attr() *uct.MDAttr {
	return &uct.MDAttr{Component: "fake", Name: m.f.mdName, RKeyLen: 8, NeedMemH: true, MaxReg: 1 << 40}
}

func (m *fakeMD) Resources() ([]uct.Resource, error) {
	var out []uct.Resource
	for _, k := range m.f.kinds {
		out = append(out, uct.Resource{Transport: k.name, Device: k.deviceName(), Kind: k.class})
	}
	return out, nil
}

func (k *fakeKind) deviceName() string { return "fake0:1" + k.device }

func (m *fakeMD) Close() error { return nil }

func (m *fakeMD) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if m.f.noReg {
		return nil, uct.ErrUnsupported
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.nextKey++
	mem := &fakeMem{f: m.f, buf: buf, key: m.f.nextKey, addr: m.f.nextKey << 32, access: access}
	m.f.regions[mem.key] = mem
	return mem, nil
}

func (m *fakeMD) UnpackRKey(b []byte) (uct.RKey, error) {
	if len(b) != 8 {
		return 0, uct.ErrInvalidRKey
	}
	return uct.RKey(binary.LittleEndian.Uint64(b)), nil
}

func (m *fakeMD) ReleaseRKey(uct.RKey) {}

type fakeMem struct {
	f         *fabric
	buf       []byte
	key, addr uint64
	access    uct.Access
}

func (m *fakeMem) Bytes() []byte { return m.buf }
func (m *fakeMem) Addr() uint64  { return m.addr }
func (m *fakeMem) PackRKey(b []byte) ([]byte, error) {
	return binary.LittleEndian.AppendUint64(b, m.key), nil
}

func (m *fakeMem) Close() error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	delete(m.f.regions, m.key)
	if len(m.f.inside) > 0 {
		return &ucs.InUseError{PIDs: m.f.inside}
	}
	return nil
}

// reach returns n bytes at addr if the key permits the access.
func (f *fabric) reach(key uct.RKey, addr uint64, n int, access uct.Access) []byte {
	m := f.regions[uint64(key)]
	if m == nil || m.access&access != access || addr < m.addr || addr-m.addr > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-(addr-m.addr) {
		return nil
	}
	return m.buf[addr-m.addr:][:n]
}

func (m *fakeMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i := slices.IndexFunc(m.f.kinds, func(k fakeKind) bool { return k.name == p.Transport && k.deviceName() == p.Device })
	if i < 0 {
		return nil, uct.ErrUnsupported
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	k := m.f.kinds[i]
	it := &fakeIface{f: m.f, kind: k, onError: p.OnError, efd: efd, index: len(m.f.ifaces), joins: m.f.joins}
	it.attr = uct.IfaceAttr{
		Resource: uct.Resource{Transport: k.name, Device: k.deviceName()}, Caps: k.caps, Atomic: k.atomic,
		AM:  uct.OpLimits{MaxBcopy: fakeBcopyM},
		Put: uct.OpLimits{MaxShort: fakeShort, MaxBcopy: fakeBcopy, MaxZcopy: fakeZcopy, MaxIOV: 1},
		Get: uct.OpLimits{MaxShort: fakeShort, MaxBcopy: fakeBcopy, MaxZcopy: fakeZcopy, MaxIOV: 1},
	}
	for v := range it.attr.Costs {
		it.attr.Costs[v] = uct.Cost{Latency: k.latency, Bandwidth: cmp.Or(k.bandwidth, 1e9)}
	}
	m.f.ifaces = append(m.f.ifaces, it)
	if k.unflagged {
		return unflaggedIface{it}, nil
	}
	return it, nil
}

// unflaggedIface hides EventPending.
type unflaggedIface struct{ *fakeIface }

func (i unflaggedIface) Ext() *uct.IfaceExt { return &uct.IfaceExt{Address: i, Wake: i} }

// fakeIface executes posted operations in Progress.
type fakeIface struct {
	f       *fabric
	kind    fakeKind
	attr    uct.IfaceAttr
	am      base.AMTable
	arb     base.Arbiter
	onError func(uct.EP, error)
	index   int
	posted  []fakeOp // in flight
	spare   []fakeOp
	rx      []fakeMsg
	rxSpare []fakeMsg
	joins   bool
	eps     []*fakeEP
	efd     int
	armed   bool
	raised  bool
	dead    bool
	stuck   bool // posts have no resources
	frozen  bool // does not execute the operations of open endpoints
	unacked bool // peers send no ACKs: flushes of open endpoints do not complete
	noFlush bool // flushes have no resources, nor get any
	polls   int
	moved   int    // bytes put and got
	loses   bool   // puts that succeed have no effect
	lost    int    // bytes of those puts
	hook    func() // called by Progress
	posting func() // called by posts on an endpoint, and by its flushes
}

type fakeMsg struct {
	id   uint8
	data []byte
}

// fakeDoes is the type of a fakeOp.
type fakeDoes uint8

const (
	fakePut fakeDoes = iota
	fakeGet
	fakeFetch // any atomic
	fakeSend
	fakeFlush
)

// fakeOp is an operation in flight.
type fakeOp struct {
	ep   *fakeEP
	kind fakeDoes
	comp *uct.Completion

	msg  fakeMsg
	dst  []byte
	src  []byte
	n    int
	addr uint64
	key  uct.RKey

	op             uct.AtomicOp
	size           int
	compare, value uint64
	result         *uint64
}

func (i *fakeIface) Attr() *uct.IfaceAttr { return &i.attr }
func (i *fakeIface) Ext() *uct.IfaceExt {
	ext := &uct.IfaceExt{Address: i, Wake: i, Pending: i}
	if i.joins {
		ext.Push = i
	}
	return ext
}
func (i *fakeIface) Push()                                        { i.f.pushes.Add(1) }
func (i *fakeIface) SetAMHandler(id uint8, h uct.AMHandler) error { return i.am.Set(id, h) }
func (i *fakeIface) Flush(c *uct.Completion) (pending bool, err error) {
	return false, uct.ErrUnsupported
}
func (i *fakeIface) Fence() error { return nil }
func (i *fakeIface) EventFD() int { return i.efd }

func (i *fakeIface) DeviceAddr(b []byte) []byte { return append(b, "fabric "+i.kind.device...) }
func (i *fakeIface) IfaceAddr(b []byte) []byte  { return append(b, byte(i.index)) }

func (i *fakeIface) Reachable(dev, _ []byte) (bool, string) {
	if string(dev) != "fabric "+i.kind.device {
		return false, "another fabric"
	}
	return true, ""
}

func (i *fakeIface) Arm(uct.Events) error {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	var b [8]byte
	_, _ = unix.Read(i.efd, b[:])
	i.armed, i.raised = true, false
	if len(i.rx) > 0 || len(i.posted) > 0 {
		i.armed = false
		return uct.ErrBusy
	}
	return nil
}

func (i *fakeIface) EventPending() bool {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	return i.raised
}

// event signals the descriptor of an armed iface. The lock is held.
func (i *fakeIface) event() {
	if i.armed {
		i.armed, i.raised = false, true
		_, _ = unix.Write(i.efd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (i *fakeIface) NewEP(p uct.EPParams) (uct.EP, error) {
	if err := i.f.failing("new ep " + i.kind.name); err != nil {
		return nil, err
	}
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	i.f.eps++
	i.f.opened[i.kind.name]++
	e := &fakeEP{i: i, id: len(i.eps)}
	if i.kind.caps.Has(uct.CapConnectIface) {
		if len(p.IfaceAddr) != 1 || int(p.IfaceAddr[0]) >= len(i.f.ifaces) {
			return nil, uct.ErrInvalidAddr
		}
		e.peer = i.f.ifaces[p.IfaceAddr[0]]
	}
	i.eps = append(i.eps, e)
	return e, nil
}

func (i *fakeIface) Close() error {
	i.f.mu.Lock()
	i.dead = true
	i.f.mu.Unlock()
	for _, e := range slices.Clone(i.eps) {
		if err := e.Close(); err != nil {
			return err
		}
	}
	for len(i.posted) > 0 {
		i.Progress()
	}
	return unix.Close(i.efd)
}

// kill makes the iface behave like one of a process that has died.
func (i *fakeIface) kill() {
	i.f.mu.Lock()
	i.dead = true
	i.f.mu.Unlock()
}

func (i *fakeIface) Progress() int {
	i.polls++
	if i.hook != nil {
		i.hook()
	}
	i.f.mu.Lock()
	ops, rx := i.posted, i.rx
	i.posted, i.spare = i.spare[:0], nil
	if i.frozen || i.unacked {
		i.posted = append(i.posted, ops...)
		i.posted = slices.DeleteFunc(i.posted, func(o fakeOp) bool { return !i.holds(&o) })
		ops = slices.DeleteFunc(ops, func(o fakeOp) bool { return i.holds(&o) })
	}
	i.rx, i.rxSpare = i.rxSpare[:0], nil
	i.f.mu.Unlock()
	for k := range ops {
		i.run(&ops[k])
	}
	for _, m := range rx {
		i.am.Handle(m.id, m.data, nil)
	}
	clear(ops)
	i.spare, i.rxSpare = ops, rx
	n := len(ops) + len(rx)
	for k := 0; k < len(i.eps); k++ { // a failure may close one
		e := i.eps[k]
		n += e.dialed() + e.checkPeer()
	}
	if i.noFlush {
		return n
	}
	return n + i.arb.Dispatch(nil)
}

// holds reports whether an operation remains in flight.
func (i *fakeIface) holds(o *fakeOp) bool {
	return !o.ep.closed && (i.frozen || i.unacked && o.kind == fakeFlush)
}

// run executes an operation and calls its completion.
func (i *fakeIface) run(o *fakeOp) {
	st := o.ep.status
	if st == 0 && o.ep.closed {
		st = ucs.StatusCanceled
	}
	if st == 0 {
		i.f.mu.Lock()
		st = o.execute()
		i.f.mu.Unlock()
	}
	o.ep.inflight--
	if st != 0 {
		o.ep.fail(st)
	}
	if o.comp != nil {
		o.comp.Complete(st)
	}
}
