package self

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/memop"
)

// iface is an open self transport.
type iface struct {
	rx       queue
	inside   bool       // Progress runs
	events   bool       // Progress must do more than deliver
	fenced   bool       // operations need a full barrier, because membarrier does not work
	guard    guard.Word // guard of operations on memory of md
	arb      base.Arbiter
	handlers base.AMTable

	md        *domain
	group     *Group
	addr      uint64
	attr      uct.IfaceAttr
	onError   func(uct.EP, error)
	eventFD   int
	open      base.List[*endpoint] // EPs of this iface
	peers     map[*endpoint]bool   // EPs to this iface
	failedEPs []*endpoint          // failed EPs of this iface for which OnError was not called
	closed    bool
}

var _ uct.Iface = (*iface)(nil)

const (
	addrLen   = 8
	maxHeader = 256     // of AMZcopy
	maxZcopy  = 1 << 30 // so large that the layer above need not split operations
	maxIOV    = 16
)

// OpenIface implements uct.MD.
func (md *domain) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	it, err := md.openIface(p)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return it, nil
}

func (md *domain) openIface(p uct.IfaceParams) (*iface, error) {
	cfg, err := base.OpenParams(&p, Name, md.cfg)
	if err != nil {
		return nil, err
	}
	if p.Device != DeviceName {
		return nil, fmt.Errorf("%w: no device %q", uct.ErrInvalidParam, p.Device)
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if err := md.users.Hold(); err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		md.users.Drop()
		return nil, os.NewSyscallError("eventfd2", err)
	}
	it := &iface{md: md, group: cfg.Group, onError: p.OnError, eventFD: fd, peers: map[*endpoint]bool{},
		attr: attrOf(int(cfg.SegSize))}
	it.rx.init(cfg.FIFOSize, int(cfg.SegSize))
	if it.group == nil {
		it.group = new(Group)
	}
	it.fenced = !expedited()
	md.mu.Lock()
	md.ifaces[it] = true
	md.mu.Unlock()
	it.addr = it.group.join(it)
	return it, nil
}

func attrOf(segSize int) uct.IfaceAttr {
	attr := uct.IfaceAttr{
		Resource: resource,
		Caps: uct.CapAM | uct.CapAMWords | uct.CapPut | uct.CapGet | uct.CapAtomic | uct.CapPending | uct.CapConnectIface |
			uct.CapErrPeer | uct.CapErrRemoteMem | uct.CapEventFD,
		AM:  uct.OpLimits{MaxShort: segSize, MaxBcopy: segSize, MaxZcopy: segSize, MaxIOV: maxIOV, MaxHeader: min(segSize, maxHeader)},
		Put: uct.OpLimits{MaxShort: maxZcopy, MaxBcopy: segSize, MaxZcopy: maxZcopy, MaxIOV: maxIOV},
		Get: uct.OpLimits{MaxShort: maxZcopy, MaxBcopy: segSize, MaxZcopy: maxZcopy, MaxIOV: maxIOV},
		Atomic: uct.AtomicAttr{Post32: memop.PostOps, Post64: memop.PostOps,
			Fetch32: memop.FetchOps, Fetch64: memop.FetchOps, Domain: uct.AtomicCPU},
		DeviceAddrLen: addrLen,
		IfaceAddrLen:  addrLen,
	}
	attr.Declare(costs())
	return attr
}

// costs returns the costs that the benchmarks of this package measure (experiment 0018 in docs/perf): a message
// takes 8 ns with its handling, a put 5 ns, an atomic about 10 ns; copied bytes are in the caches.
func costs() (cs uct.Costs) {
	const bw = 100e9
	cs.Set(uct.Cost{Send: 4, Recv: 4, Bandwidth: bw}, uct.AMShort)
	cs.Set(uct.Cost{Send: 8, Recv: 5, Bandwidth: bw}, uct.AMBcopy, uct.AMZcopy)
	cs.Set(uct.Cost{Send: 5, Bandwidth: bw}, uct.PutShort, uct.GetShort)
	cs.Set(uct.Cost{Send: 7, Bandwidth: bw}, uct.PutBcopy, uct.GetBcopy, uct.PutZcopy, uct.GetZcopy)
	cs.Set(uct.Cost{Send: 10}, uct.AtomicPost, uct.AtomicFetch)
	return cs
}

// Attr implements uct.Iface.
func (it *iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface.
func (it *iface) Ext() *uct.IfaceExt {
	return &uct.IfaceExt{Address: it, Wake: it, Pending: it, Armed: it, Stats: it, Guarded: true}
}

// SetAMHandler implements uct.Iface.
func (it *iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.handlers.Set(id, h) }

// AddStats implements uct.Counted.
func (it *iface) AddStats(n *stats.Node) { it.handlers.AddStats(n) }

// Progress implements uct.Iface. It delivers what was posted before, not what handlers post.
func (it *iface) Progress() (n int) {
	q := &it.rx
	if end := q.tail; q.head != end {
		it.enter()
		for ; q.head != end; n++ {
			s := q.slotAt(q.head)
			if size := s.word >> shiftLen; size <= inlineLen {
				it.handlers.At(uint8(s.word)).HandleAM(s.data[:size:size], nil)
			} else {
				q.deliver(s.word, &it.handlers)
			}
			q.head += slotLen
			q.limit += slotLen
		}
		it.inside = false
	}
	if it.events {
		n += it.runDeferred()
	}
	return n
}

// enter records that Progress runs. It panics if Progress runs already.
func (it *iface) enter() {
	if it.inside {
		panic(uct.TwoAtOnce)
	}
	it.inside = true
}

// runDeferred reports failed EPs and dispatches pending requests.
//
//go:noinline
func (it *iface) runDeferred() (n int) {
	it.enter()
	if len(it.failedEPs) > 0 {
		n = it.reportFailed()
	}
	if it.arb.Len() > 0 {
		n += it.arb.Dispatch(nil)
	}
	it.events = len(it.failedEPs) > 0 || it.arb.Len() > 0
	it.inside = false
	return n
}

// reportFailed calls OnError for EPs whose peer has closed.
func (it *iface) reportFailed() int {
	failed := it.failedEPs
	it.failedEPs = nil
	for _, e := range failed {
		if !e.closed {
			it.onError(e, errFailed)
		}
	}
	return len(failed)
}

// Flush implements uct.Iface: every accepted operation is in the peer's queue or
// memory already.
func (it *iface) Flush(*uct.Completion) (bool, error) { return false, nil }

// Fence implements uct.Iface.
func (it *iface) Fence() error { return nil }

// DeviceAddr implements uct.IfaceAddresser. It is the iface address.
func (it *iface) DeviceAddr(b []byte) []byte { return it.IfaceAddr(b) }

// IfaceAddr implements uct.IfaceAddresser.
func (it *iface) IfaceAddr(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, it.addr) }

// Reachable implements uct.IfaceAddresser.
func (it *iface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	if ifaceAddr == nil {
		ifaceAddr = deviceAddr
	}
	if _, err := it.peer(deviceAddr, ifaceAddr); err != nil {
		return false, err.Error()
	}
	return true, ""
}

func (it *iface) peer(deviceAddr, ifaceAddr []byte) (*iface, error) {
	if len(deviceAddr) != addrLen || string(ifaceAddr) != string(deviceAddr) {
		return nil, fmt.Errorf("%w: not an address of self", uct.ErrInvalidAddr)
	}
	p := it.group.find(binary.LittleEndian.Uint64(deviceAddr))
	if p == nil {
		return nil, fmt.Errorf("%w: the iface is not in this group", uct.ErrUnreachable)
	}
	if p.attr.AM != it.attr.AM {
		return nil, fmt.Errorf("%w: SEG_SIZE differs", uct.ErrUnreachable)
	}
	return p, nil
}

// EventFD implements uct.Waker.
func (it *iface) EventFD() int { return it.eventFD }

// EventPending implements uct.EventPender.
func (it *iface) EventPending() bool { return it.rx.head != it.rx.tail || len(it.failedEPs) > 0 }

// Arm implements uct.Waker. Only the goroutine that owns the iface causes events, so that later
// events come from a post after Arm.
func (it *iface) Arm(uct.Events) error {
	var count [8]byte
	_, _ = unix.Read(it.eventFD, count[:]) // EAGAIN: no event since the last Arm
	if it.EventPending() || it.arb.Len() > 0 {
		return uct.ErrBusy
	}
	it.rx.awaited, it.rx.limit = true, it.rx.tail
	return nil
}

// StillArmed implements uct.ArmChecker. The first post after Arm wakes the owner.
func (it *iface) StillArmed() bool { return it.arb.Len() == 0 }

// wake makes the event descriptor readable.
//
//go:noinline
func (it *iface) wake() {
	it.rx.awaited, it.rx.limit = false, it.rx.head+it.rx.mask+1
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(it.eventFD, one[:]) // cannot fail: the counter is small
}

// Close implements uct.Iface. It drops queued messages; EPs to this iface
// fail.
func (it *iface) Close() error {
	if it.closed {
		return nil
	}
	it.closed = true
	var errs error
	for it.open.Len() > 0 {
		errs = errors.Join(errs, it.open.All()[0].Close())
	}
	for e := range it.peers {
		e.fail()
	}
	it.group.leave(it.addr)
	it.md.mu.Lock()
	delete(it.md.ifaces, it)
	it.md.mu.Unlock()
	it.md.users.Drop()
	return errors.Join(errs, os.NewSyscallError("close eventfd", unix.Close(it.eventFD)))
}
