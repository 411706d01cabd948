package sm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

// iface is an open sm transport.
type iface struct {
	in          []*inLink // peers, polled in turn
	ctl         *control
	events      atomic.Uint32 // event bits; not 0 if Progress must do more than poll
	marked      bool          // peers set their attention words
	pollAllNext bool
	exchange    exchange
	opsWait     bool // some EP may have targetOps
	sleeps      int  // number of sleeps, each within oftenWithin of the previous one
	lastSleep   time.Time
	fence       atomic.Uint32 // used by barrier
	byIndex     []*inLink
	arb         base.Arbiter
	handlers    base.AMTable
	open        base.List[*endpoint]
	groups      base.FlushGroups
	links       map[portGID]*outLink // by peer; dialed or up

	md        *domain
	cfg       Config
	attr      uct.IfaceAttr
	onError   func(uct.EP, error)
	device    []byte // address
	gid       portGID
	ctlIndex  uint32
	waker     *attach.Waker
	armed     uint32 // state as of the last Arm
	port      *attach.Port
	undo      cleanup.Stack
	malformed stats.Counter // links that failed because the peer wrote invalid data
	traffic   base.Traffic
	closed    bool
	dials     sync.WaitGroup

	mu       sync.Mutex // protects the fields that other goroutines use:
	fresh    []*inLink  // accepted links that are not polled yet
	dialed   []dialed
	attnUsed []bool
	closing  bool
}

var _ uct.Iface = (*iface)(nil)

const (
	maxHeader = 256     // of AMZcopy
	maxZcopy  = 1 << 30 // a copy by the CPU of about 50 ms
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

func (md *domain) openIface(p uct.IfaceParams) (_ *iface, err error) {
	cfg, err := md.ifaceConfig(p)
	if err != nil {
		return nil, err
	}
	if err := md.attachable(cfg.CMA); err != nil && cfg.CMA == config.Yes {
		return nil, fmt.Errorf("CMA=y: %w", err)
	}
	it := &iface{md: md, cfg: cfg, onError: p.OnError, attr: attrOf(&cfg), attnUsed: make([]bool, cfg.MaxPeers),
		links: map[portGID]*outLink{}, exchange: exchange{idle: notSoon, maxPauses: pauseBound()}}
	defer func() {
		if err != nil {
			err = errors.Join(err, it.undo.Run())
		}
	}()
	if it.device, err = deviceAddr(cfg.SocketDir); err != nil {
		return nil, err
	}
	if it.ctlIndex, err = md.reserveControl(); err != nil {
		return nil, err
	}
	it.undo.Add(func() error { md.releaseControl(it.ctlIndex); return nil })
	it.ctl = controlAt(md.arenaSeg.Bytes(), it.ctlIndex)
	it.resetControl()
	if it.waker, err = attach.NewWaker(); err != nil {
		return nil, err
	}
	it.undo.Add(it.waker.Close)
	return it, it.listen()
}

// resetControl clears bits that peers of an earlier iface have set.
func (it *iface) resetControl() {
	it.ctl.state.Store(0)
	if !it.md.expedited {
		it.ctl.state.Store(stateFenced)
	}
	for i := range it.ctl.attention {
		it.ctl.attention[i].Store(0)
	}
}

func (it *iface) listen() (err error) {
	_, _ = rand.Read(it.gid[:ifaceAddrLen]) // does not fail
	it.port, err = attach.Listen(attach.Config{
		Service: Name, GID: it.gid, Layout: layoutVersion, Table: it.md.tableSeg, Arena: it.md.arenaSeg,
		ControlLen: controlLen, DialLen: controlLen, Mapper: &mapper, LinkLen: linkLen, WakeFD: it.waker.PeerFD(), AllowUIDs: it.cfg.AllowUIDs,
		SocketDir: it.cfg.SocketDir, Local: true, MaxLinks: it.cfg.MaxPeers, OnLink: it.accept,
		HandshakeTimeout: it.cfg.ConnectTimeout,
	})
	return err
}

// ifaceConfig checks the parameters of OpenIface.
func (md *domain) ifaceConfig(p uct.IfaceParams) (Config, error) {
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
		Caps: uct.CapAM | uct.CapAMWords | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapAtomic | uct.CapPending |
			uct.CapConnectIface | uct.CapErrPeer | uct.CapErrPeerIdle | uct.CapErrRemoteMem | uct.CapEventFD,
		AM:  uct.OpLimits{MaxShort: seg, MaxBcopy: seg, MaxZcopy: seg, MaxIOV: maxIOV, MaxHeader: min(seg, maxHeader)},
		Put: uct.OpLimits{MaxShort: seg, MaxBcopy: seg, MaxZcopy: maxZcopy, MaxIOV: maxIOV},
		Get: uct.OpLimits{MaxBcopy: seg, MaxZcopy: maxZcopy, MaxIOV: maxIOV},
		Atomic: uct.AtomicAttr{Post32: memop.PostOps, Post64: memop.PostOps,
			Fetch32: memop.FetchOps, Fetch64: memop.FetchOps, Domain: uct.AtomicCPU},
		DeviceAddrLen: deviceAddrLen,
		IfaceAddrLen:  ifaceAddrLen,
	}
	if cfg.CMA == config.Yes { // all memory can be read without the peer
		attr.Caps |= uct.CapGetShort
		attr.Get.MaxShort = seg
	}
	attr.Declare(costs())
	return attr
}

// costs returns the costs of experiment 0089 in docs/perf for two processes whose CPUs share a cache. Large
// messages are copied twice.
func costs() (cs uct.Costs) {
	const bw = 50e9
	cs.Set(uct.Cost{Send: 8, Recv: 8, Latency: 48, Bandwidth: bw, SharedBandwidth: bw}, uct.AMShort)
	cs.Set(uct.Cost{Send: 20, Recv: 12, Latency: 60, Bandwidth: bw / 2, SharedBandwidth: bw / 2}, uct.AMBcopy, uct.AMZcopy)
	cs.Set(uct.Cost{Send: 5, Latency: 38, Bandwidth: bw, SharedBandwidth: bw}, uct.PutShort)
	cs.Set(uct.Cost{Send: 7, Latency: 38, Bandwidth: bw, SharedBandwidth: bw}, uct.PutBcopy, uct.PutZcopy)
	cs.Set(uct.Cost{Send: 9, Latency: 38, Bandwidth: bw, SharedBandwidth: bw}, uct.GetShort, uct.GetBcopy, uct.GetZcopy)
	cs.Set(uct.Cost{Send: 12, Latency: 38}, uct.AtomicPost, uct.AtomicFetch)
	return cs
}

// Attr implements uct.Iface.
func (it *iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface.
func (it *iface) Ext() *uct.IfaceExt {
	return &uct.IfaceExt{Address: it, Wake: it, Pending: it, Armed: it, Stats: it, Explain: it, Measure: it, Guarded: true}
}

// SetAMHandler implements uct.Iface.
func (it *iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.handlers.Set(id, h) }

// AddStats implements uct.Counted.
func (it *iface) AddStats(n *stats.Node) {
	it.handlers.AddStats(n)
	n.Add("malformed_links", &it.malformed)
	n.Add("domain_quarantined", &it.md.owner.Quarantined)
	n.Add("domain_quarantined_bytes", &it.md.owner.QuarantinedBytes)
	it.traffic.AddStats(n, "messages")
}

// UpdateStats implements uct.StatsUpdater. The messages are those of the rings: active messages, and requests that the
// process of the peer executes.
func (it *iface) UpdateStats() {
	var sent, received uint64
	for _, l := range it.links {
		sent += l.tx.tail
	}
	for _, l := range it.in {
		received += l.rx.head
	}
	it.traffic.Update(sent, received)
}

// Progress implements uct.Iface. When idle it takes about 30 ns, in a PAUSE: an immediate second poll
// would take the cache line from the peer that is about to write it. See exchange.
func (it *iface) Progress() (n int) {
	if it.exchange.idle <= 0 {
		it.exchange.wait()
	}
	it.exchange.found, it.exchange.idle = it.exchange.idle, inProgress
	if it.marked {
		n = it.pollMarked()
	} else {
		for i := 0; i < len(it.in); i++ { // repeats pollAll, because a call would cost time
			if l := it.in[i]; l.rx.waiting() {
				n += l.poll()
			}
		}
	}
	if it.events.Load() != 0 {
		n += it.runDeferred()
	}
	switch x := &it.exchange; {
	case n == 1:
		x.idle = 0
	case n > 1:
		x.idle = notSoon
	default:
		if x.idle = x.found + 1; x.idle > idlePolls {
			mmio.Pause()
		}
	}
	return n
}

// Bits of Iface.events.
const (
	eventPosted = 1 << iota // another goroutine has posted an event
	eventWaits              // operations or pending requests may wait; set by waits
)

// waits makes Progress check operations and pending requests.
func (it *iface) waits() { it.events.Or(eventWaits) }

// runDeferred handles events, replies and pending requests.
//
//go:noinline
func (it *iface) runDeferred() (n int) {
	if it.events.Load()&eventPosted != 0 {
		n = it.handleEvents()
	}
	if it.opsWait {
		n += it.collect()
	}
	if it.arb.Len() > 0 {
		n += it.arb.Dispatch(nil)
	}
	if !it.opsWait && it.arb.Len() == 0 {
		it.events.And(^uint32(eventWaits))
	}
	return n
}

// handleEvents handles the events that other goroutines have posted.
func (it *iface) handleEvents() int {
	it.events.And(^uint32(eventPosted))
	it.addNewLinks()
	n := it.dropLost()
	it.mu.Lock()
	list := it.dialed
	it.dialed = nil
	it.mu.Unlock()
	for _, d := range list {
		n += d.link.connected(d.out, d.err)
	}
	return n + it.failLost()
}

// Flush implements uct.Iface.
func (it *iface) Flush(c *uct.Completion) (bool, error) { return it.flushAll(c) }

// Fence implements uct.Iface.
func (it *iface) Fence() error {
	for _, e := range it.open.All() {
		e.fenced = !e.ops.empty()
	}
	mmio.ToDevice()
	return nil
}

// DeviceAddr implements uct.IfaceAddresser.
func (it *iface) DeviceAddr(b []byte) []byte { return append(b, it.device...) }

// IfaceAddr implements uct.IfaceAddresser.
func (it *iface) IfaceAddr(b []byte) []byte { return append(b, it.gid[:ifaceAddrLen]...) }

// Reachable implements uct.IfaceAddresser.
func (it *iface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	if _, err := peerGID(it.device, deviceAddr, ifaceAddr); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// Close implements uct.Iface. It drops messages that were not delivered.
func (it *iface) Close() error {
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
		l.rx.hdr.closed.Store(1) // pairs with the load in outLink.disconnectReason, after the hang-up
		it.dropLink(l)
	}
	it.in, it.fresh = nil, nil
	it.UpdateStats()
	errs = errors.Join(errs, it.port.Close())
	it.dials.Wait()
	for _, d := range it.dialed {
		d.link.connected(d.out, d.err)
	}
	if errs = errors.Join(errs, it.undo.Run()); errs != nil {
		return &ucs.OpError{TL: Name, Dev: DeviceName, Op: "close iface", Err: errs}
	}
	return nil
}
