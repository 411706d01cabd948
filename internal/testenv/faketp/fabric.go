// Package faketp has fake transports in memory, of which a test sets the capabilities and the faults. They need nothing
// of package ucp, whose tests run over them.
package faketp

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
)

// Fabric is a component: a small transport family in memory for the tests of ucp. Progress delivers completions, queues are tiny,
// and each transport has the capabilities that the test sets. Workers of different goroutines may use it.
type Fabric struct {
	Mu        sync.Mutex // of Ifaces, and of what the ifaces have in flight
	Ifaces    []*Iface   // in the order in which workers opened them
	regions   map[uint64]*region
	nextKey   uint64
	EPsOpened int          // opened so far
	Sent      int          // active messages so far
	Checks    int          // calls of Check
	Flushes   atomic.Int64 // calls of Flush, by any worker
	NeedsPush bool         // ifaces that are opened need Push
	Pushes    atomic.Int64 // calls of Push
	Kinds     []Kind
	mdName    string
	NoReg     bool
	Inside    []int // processes that access the regions
	failMu    sync.Mutex
	Failures  map[string]error // by "new ep fud", "connect frc": the error of the next such call; see FailNext
	Dead      map[string]error // by kind: the error of endpoints that connect to an iface
	Opened    map[string]int   // by kind: endpoints opened so far
}

// Kind is one transport of a fabric.
type Kind struct {
	Name      string
	Caps      uct.Caps
	atomic    uct.AtomicAttr
	Depth     int // operations in flight on an iface
	Latency   time.Duration
	Device    string // fakes on different devices do not reach each other
	Bandwidth uint64 // in bytes per second; 0 means 1e9
	class     uct.DeviceKind
	Unflagged bool // events show in the descriptor only
	Dials     bool // an endpoint connects at its first post, and accepts no post before
	late      bool // operations of a closed endpoint complete in Progress, or when the iface closes
	Silent    bool // a dead peer is detected only by posts and Check
}

// Limits of the operations, in bytes.
const (
	MaxShort = 32
	MaxBcopy = 256
	MaxZcopy = 1 << 20
	MaxAM    = 2048 // active messages: large enough for a handshake message
)

var allCaps = uct.CapAMBcopy | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapPending | uct.CapErrPeer | uct.CapErrRemoteMem | uct.CapEventFD

// LikeRC connects endpoint to endpoint and has the atomics of InfiniBand.
func LikeRC() Kind {
	return Kind{
		Name: "frc", Caps: allCaps | uct.CapAtomic64 | uct.CapConnectEP, Depth: 4, Latency: time.Microsecond, late: true,
		atomic: uct.AtomicAttr{
			Post64: uct.AtomicSet(uct.AtomicAdd), Fetch64: uct.AtomicSet(uct.AtomicAdd, uct.AtomicCSwap), Domain: uct.AtomicDevice,
		},
	}
}

// LikeUD has active messages and connects to an iface.
func LikeUD() Kind {
	return Kind{
		Name: "fud", Depth: 4, Latency: 2 * time.Microsecond,
		Caps: uct.CapAMBcopy | uct.CapPending | uct.CapConnectIface | uct.CapErrPeer | uct.CapEventFD,
	}
}

// LikeSM has all operations and connects to an iface.
func LikeSM() Kind {
	all := uct.AtomicSet(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap)
	k := Kind{Name: "fsm", class: uct.DeviceShm, Caps: allCaps | uct.CapGetShort | uct.CapAtomic | uct.CapConnectIface, Depth: 8}
	fetch := all | uct.AtomicSet(uct.AtomicCSwap)
	k.atomic = uct.AtomicAttr{Post32: all, Post64: all, Fetch32: fetch, Fetch64: fetch, Domain: uct.AtomicCPU}
	return k
}

// LikeTCP has put and get and no atomics.
func LikeTCP() Kind {
	k := LikeSM()
	k.Name, k.class, k.Caps, k.atomic = "ftcp", uct.DeviceNet, k.Caps&^(uct.CapAtomic|uct.CapPutShort|uct.CapGetShort), uct.AtomicAttr{}
	return k
}

// New returns a fabric with a transport of each kind.
func New(kinds ...Kind) *Fabric {
	return &Fabric{regions: map[uint64]*region{}, Kinds: kinds, mdName: "fake0", Failures: map[string]error{}, Dead: map[string]error{}, Opened: map[string]int{}}
}

func (f *Fabric) Name() string { return "fake" }

func (f *Fabric) MDs() ([]uct.MDResource, error) { return []uct.MDResource{{Name: f.mdName}}, nil }

func (f *Fabric) OpenMD(string) (uct.MD, error) { return &domain{f: f}, nil }

// FailNext makes the next call of that name fail.
func (f *Fabric) FailNext(what string, err error) {
	f.failMu.Lock()
	defer f.failMu.Unlock()
	f.Failures[what] = err
}

func (f *Fabric) failing(what string) error {
	f.failMu.Lock()
	defer f.failMu.Unlock()
	err := f.Failures[what]
	delete(f.Failures, what)
	return err
}

type domain struct{ f *Fabric }

func (m *domain) Ext() *uct.MDExt { return &uct.MDExt{Reg: m, Keys: m} }

func (m *domain) Attr() *uct.MDAttr {
	return &uct.MDAttr{Component: "fake", Name: m.f.mdName, RKeyLen: 8, NeedMemH: true, MaxReg: 1 << 40}
}

func (m *domain) Resources() ([]uct.Resource, error) {
	var out []uct.Resource
	for _, k := range m.f.Kinds {
		out = append(out, uct.Resource{Transport: k.Name, Device: k.deviceName(), Kind: k.class})
	}
	return out, nil
}

func (k *Kind) deviceName() string { return "fake0:1" + k.Device }

func (m *domain) Close() error { return nil }

func (m *domain) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if m.f.NoReg {
		return nil, uct.ErrUnsupported
	}
	m.f.Mu.Lock()
	defer m.f.Mu.Unlock()
	m.f.nextKey++
	mem := &region{f: m.f, buf: buf, key: m.f.nextKey, addr: m.f.nextKey << 32, access: access}
	m.f.regions[mem.key] = mem
	return mem, nil
}

func (m *domain) UnpackRKey(b []byte) (uct.RKey, error) {
	if len(b) != 8 {
		return 0, uct.ErrInvalidRKey
	}
	return uct.RKey(binary.LittleEndian.Uint64(b)), nil
}

func (m *domain) ReleaseRKey(uct.RKey) {}

type region struct {
	f         *Fabric
	buf       []byte
	key, addr uint64
	access    uct.Access
}

func (m *region) Bytes() []byte { return m.buf }
func (m *region) Addr() uint64  { return m.addr }
func (m *region) PackRKey(b []byte) ([]byte, error) {
	return binary.LittleEndian.AppendUint64(b, m.key), nil
}

func (m *region) Close() error {
	m.f.Mu.Lock()
	defer m.f.Mu.Unlock()
	delete(m.f.regions, m.key)
	if len(m.f.Inside) > 0 {
		return &ucs.InUseError{PIDs: m.f.Inside}
	}
	return nil
}

// reach returns n bytes at addr if the key permits the access.
func (f *Fabric) reach(key uct.RKey, addr uint64, n int, access uct.Access) []byte {
	m := f.regions[uint64(key)]
	if m == nil || m.access&access != access || addr < m.addr || addr-m.addr > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-(addr-m.addr) {
		return nil
	}
	return m.buf[addr-m.addr:][:n]
}

func (m *domain) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i := slices.IndexFunc(m.f.Kinds, func(k Kind) bool { return k.Name == p.Transport && k.deviceName() == p.Device })
	if i < 0 {
		return nil, uct.ErrUnsupported
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	m.f.Mu.Lock()
	defer m.f.Mu.Unlock()
	k := m.f.Kinds[i]
	it := &Iface{Fabric: m.f, Kind: k, OnError: p.OnError, efd: efd, index: len(m.f.Ifaces), joins: m.f.NeedsPush}
	it.attr = uct.IfaceAttr{
		Resource: uct.Resource{Transport: k.Name, Device: k.deviceName(), Kind: k.class}, Caps: k.Caps, Atomic: k.atomic,
		AM:  uct.OpLimits{MaxBcopy: MaxAM},
		Put: uct.OpLimits{MaxShort: MaxShort, MaxBcopy: MaxBcopy, MaxZcopy: MaxZcopy, MaxIOV: 1},
		Get: uct.OpLimits{MaxShort: MaxShort, MaxBcopy: MaxBcopy, MaxZcopy: MaxZcopy, MaxIOV: 1},
	}
	for v := range it.attr.Costs {
		it.attr.Costs[v] = uct.Cost{Latency: k.Latency, Bandwidth: cmp.Or(k.Bandwidth, 1e9)}
	}
	m.f.Ifaces = append(m.f.Ifaces, it)
	if k.Unflagged {
		return unflaggedIface{it}, nil
	}
	return it, nil
}

// DropArrivals drops the messages that have arrived and were not handled.
func (f *Fabric) DropArrivals() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for _, i := range f.Ifaces {
		i.Received = nil
	}
}

// IfaceOf returns the fake of the i-th transport of a worker; the worker that is opened first is 0.
func (f *Fabric) IfaceOf(worker, i int) *Iface { return f.Ifaces[worker*len(f.Kinds)+i] }

// OpenEPs returns the number of open transport endpoints.
func (f *Fabric) OpenEPs() (n int) {
	for _, i := range f.Ifaces {
		n += len(i.EPs)
	}
	return n
}
