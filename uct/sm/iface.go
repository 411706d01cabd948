package sm

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Iface is an open sm transport. It implements uct.IfaceAddresser, uct.Waker,
// uct.EventPender and uct.Explainer.
type Iface struct {
	in        []*inLink // peers, polled in turn
	ctl       *control
	events    atomic.Uint32 // nonzero: other goroutines have left word
	marked    bool          // peers mark their attention words
	lookAtAll bool
	asking    bool // some EP may have asks
	byIndex   []*inLink
	arb       base.Arbiter
	handlers  base.AMTable
	open      base.List[*EP]

	md        *MD
	cfg       Config
	attr      uct.IfaceAttr
	onError   func(uct.EP, error)
	device    []byte // address
	gid       [ifaceAddrLen]byte
	ctlIndex  uint32
	wakeFD    int
	armed     uint32 // state as of the last Arm
	port      *attach.Port
	undo      cleanup.Stack
	malformed stats.Counter // links ended because of what the peer wrote
	closed    bool
	dials     sync.WaitGroup

	mu       sync.Mutex // of what other goroutines touch:
	fresh    []*inLink  // accepted, not polled yet
	dialed   []dialed
	attnUsed []bool
	closing  bool
}

var (
	_ uct.Iface          = (*Iface)(nil)
	_ uct.IfaceAddresser = (*Iface)(nil)
	_ uct.Waker          = (*Iface)(nil)
	_ uct.EventPender    = (*Iface)(nil)
	_ uct.Counted        = (*Iface)(nil)
	_ uct.Explainer      = (*Iface)(nil)
)

const (
	maxHeader = 256     // of AMZcopy
	maxZcopy  = 1 << 30 // a copy by the CPU of about 50 ms
	maxIOV    = 16
)

// OpenIface implements uct.MD.
func (md *MD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	it, err := md.openIface(p)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return it, nil
}

func (md *MD) openIface(p uct.IfaceParams) (_ *Iface, err error) {
	cfg, err := md.ifaceConfig(p)
	if err != nil {
		return nil, err
	}
	if err := md.attachable(cfg.CMA); err != nil && cfg.CMA == config.Yes {
		return nil, fmt.Errorf("CMA=y: %w", err)
	}
	it := &Iface{md: md, cfg: cfg, onError: p.OnError, attr: attrOf(&cfg), attnUsed: make([]bool, cfg.MaxPeers)}
	defer func() {
		if err != nil {
			err = errors.Join(err, it.undo.Run())
		}
	}()
	if it.device, err = deviceAddr(cfg.SocketDir); err != nil {
		return nil, err
	}
	if it.ctlIndex, err = md.takeControl(); err != nil {
		return nil, err
	}
	it.undo.Add(func() error { md.giveControl(it.ctlIndex); return nil })
	it.ctl = controlAt(md.arenaSeg.Bytes(), it.ctlIndex)
	it.resetControl()
	if it.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("eventfd2", err)
	}
	it.undo.Add(func() error { return os.NewSyscallError("close eventfd", unix.Close(it.wakeFD)) })
	return it, it.listen()
}

// resetControl clears what peers of an earlier iface have left.
func (it *Iface) resetControl() {
	it.ctl.state.Store(0)
	for i := range it.ctl.attention {
		it.ctl.attention[i].Store(0)
	}
}

func (it *Iface) listen() (err error) {
	_, _ = rand.Read(it.gid[:]) // does not fail
	it.port, err = attach.Listen(attach.Config{
		Service: Name, GID: it.gid, Layout: layoutVersion, Table: it.md.tableSeg, Arena: it.md.arenaSeg,
		ControlLen: controlLen, LinkLen: linkLen, WakeFD: it.wakeFD, AllowUIDs: it.cfg.AllowUIDs,
		SocketDir: it.cfg.SocketDir, MaxLinks: it.cfg.MaxPeers, OnLink: it.accept,
		HandshakeTimeout: it.cfg.ConnectTimeout,
	})
	return err
}

// ifaceConfig checks the parameters of OpenIface.
func (md *MD) ifaceConfig(p uct.IfaceParams) (Config, error) {
	cfg, err := base.OpenParams(&p, Name, md.cfg)
	if err != nil {
		return cfg, err
	}
	if p.Device != DeviceName {
		return cfg, fmt.Errorf("%w: no device %q", uct.ErrInvalidParam, p.Device)
	}
	return cfg.withDefaults()
}

func attrOf(cfg *Config) uct.IfaceAttr {
	seg := int(cfg.SegSize)
	attr := uct.IfaceAttr{
		Resource: resource,
		Caps: uct.CapAM | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapAtomic | uct.CapPending |
			uct.CapConnectIface | uct.CapErrPeer | uct.CapErrRemoteMem | uct.CapEventFD,
		AM:  uct.OpLimits{MaxShort: inlineLen, MaxBcopy: seg, MaxZcopy: seg, MaxIOV: maxIOV, MaxHeader: min(seg, maxHeader)},
		Put: uct.OpLimits{MaxShort: seg, MaxBcopy: seg, MaxZcopy: maxZcopy, MaxIOV: maxIOV},
		Get: uct.OpLimits{MaxBcopy: seg, MaxZcopy: maxZcopy, MaxIOV: maxIOV},
		Atomic: uct.AtomicAttr{Post32: memop.PostOps, Post64: memop.PostOps,
			Fetch32: memop.FetchOps, Fetch64: memop.FetchOps, Domain: uct.AtomicCPU},
		DeviceAddrLen: deviceAddrLen,
		IfaceAddrLen:  ifaceAddrLen,
		Perf:          perf,
		MaxEPs:        cfg.MaxPeers,
	}
	if cfg.CMA == config.Yes { // then whatever a key allows can be read at once
		attr.Caps |= uct.CapGetShort
		attr.Get.MaxShort = seg
	}
	return attr
}

// perf is what docs/perf-sm.md has for one pair of processes.
var perf = uct.Perf{
	Latency: 50 * time.Nanosecond, Overhead: 8 * time.Nanosecond,
	Bandwidth: 50e9, SharedBandwidth: 50e9,
}

// Attr implements uct.Iface.
func (it *Iface) Attr() *uct.IfaceAttr { return &it.attr }

// SetAMHandler implements uct.Iface.
func (it *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.handlers.Set(id, h) }

// AddStats implements uct.Counted.
func (it *Iface) AddStats(n *stats.Node) {
	it.handlers.AddStats(n)
	n.Add("malformed_links", &it.malformed)
}

// Progress implements uct.Iface. When idle it takes about 30 ns, in a PAUSE: looking
// again at once would take the line away from the peer that is about to write it.
func (it *Iface) Progress() (n int) {
	if it.marked {
		n = it.pollMarked()
	} else {
		n = it.pollAll()
	}
	if it.events.Load() != 0 {
		n += it.handleEvents()
	}
	if it.asking {
		n += it.collect()
	}
	if it.arb.Len() > 0 {
		n += it.arb.Dispatch(nil)
	}
	if n == 0 {
		mmio.Pause()
	}
	return n
}

// handleEvents does what other goroutines left word of.
func (it *Iface) handleEvents() int {
	it.events.Store(0)
	it.adopt()
	n := it.bury()
	it.mu.Lock()
	list := it.dialed
	it.dialed = nil
	it.mu.Unlock()
	for _, d := range list {
		n += d.ep.connected(d.out, d.err)
	}
	return n + it.failDown()
}

// failDown fails the EPs whose peers are gone.
func (it *Iface) failDown() (n int) {
	for i := 0; i < it.open.Len(); {
		e := it.open.All()[i]
		if e.hold.Load()&holdDown != 0 && e.state == epUp {
			e.fail(cmp.Or(e.cause, ucs.StatusConnReset.Err()))
			n++
			i = 0 // OnError may have closed any EP
			continue
		}
		i++
	}
	return n
}

// Flush implements uct.Iface.
func (it *Iface) Flush(c *uct.Completion) (bool, error) { return it.flushAll(c) }

// Fence implements uct.Iface.
func (it *Iface) Fence() error {
	for _, e := range it.open.All() {
		e.holdFenced(!e.asks.empty())
	}
	mmio.ToDevice()
	return nil
}

// DeviceAddr implements uct.IfaceAddresser.
func (it *Iface) DeviceAddr(b []byte) []byte { return append(b, it.device...) }

// IfaceAddr implements uct.IfaceAddresser.
func (it *Iface) IfaceAddr(b []byte) []byte { return append(b, it.gid[:]...) }

// Reachable implements uct.IfaceAddresser.
func (it *Iface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	if _, err := peerGID(it.device, deviceAddr, ifaceAddr); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// Close implements uct.Iface. Messages that were not delivered are dropped.
func (it *Iface) Close() error {
	if it.closed {
		return nil
	}
	it.closed = true
	it.mu.Lock()
	it.closing = true
	it.mu.Unlock()
	var errs error
	for it.open.Len() > 0 {
		errs = errors.Join(errs, it.open.All()[0].Close())
	}
	for _, l := range append(it.in, it.fresh...) {
		it.forget(l)
	}
	it.in, it.fresh = nil, nil
	errs = errors.Join(errs, it.port.Close())
	it.dials.Wait()
	for _, d := range it.dialed {
		d.ep.connected(d.out, d.err)
	}
	if errs = errors.Join(errs, it.undo.Run()); errs != nil {
		return &ucs.OpError{TL: Name, Dev: DeviceName, Op: "close iface", Err: errs}
	}
	return nil
}
