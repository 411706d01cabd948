package rccore

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Iface is an open transport. A transport embeds it or is it. Open makes it.
type Iface struct {
	// What every post and Progress touches.
	poller   Poller
	cq       CompQueue
	watch    *ucs.Watch      // of cq
	Attn     atomic.Uint32   // why Progress cannot take the short way: attn bits, ib.Raised
	put      [1]verbs.SendWR // RDMA write, inline
	am       [1]verbs.SendWR // send with immediate, inline
	fetch    [1]verbs.SendWR // read or atomic into a slot, fetchSGE
	write    [1]verbs.SendWR // write of one piece, oneSGE
	read     [1]verbs.SendWR // read likewise
	oneSGE   [1]verbs.SGE
	long     [1]verbs.SendWR // write or read with a gather list
	full     [1]verbs.SendWR // anything else
	fetchSGE [1]verbs.SGE
	discard  verbs.SGE // where atomics return what the caller does not want
	wc       []verbs.WC
	recent   [256]*EP // by the last byte of the QPN: EPs, or &eps.vacant

	MaxInline  int    // longest short operation
	maxZcopy   int    // longest zero-copy write or read
	Moderation uint64 // work requests of one EP without completion

	eps       epTable
	wake      *ib.Wake
	arb       base.Arbiter
	handlers  base.AMTable
	handed    []qpFault // of async, being looked at
	flushed   []flushedEP
	tx        *ib.Pool // bounce buffers
	slots     *ib.Pool // of ops and EPs, and one for results that nobody wants
	ops       opPool
	signalDue bool // completions are to be asked for: see postSignals
	groups    base.FlushGroups
	rx        *ib.RecvQueue
	due       *EP   // EPs that are to return credits, linked by next
	cqFree    int   // CQ slots that no EP leases
	leases    []*EP // EPs that lease some, in no particular order
	unsettled settleQueue
	lastLook  time.Duration // at EPs that leave, a time of timelimit.Now
	leaving   bool          // closed EPs may wait for their peers to take notice
	// leasesUsed: EPs use all slots that they lease, unless completions have come since finish ran last.
	leasesUsed bool
	sges       []verbs.SGE
	scratch    [maxScratch]byte // a short message while it is posted

	name    string
	self    uct.Iface // what the user has: this, or what embeds it
	driver  Driver
	ext     Extension // nil: none
	links   Links     // nil: QPs
	extCQ   int
	cost    time.Duration // declared overhead of a post
	verbsCQ *verbs.CQ
	md      *ib.MD
	port    *ib.Port
	cfg     Config
	attr    uct.IfaceAttr
	onError func(uct.EP, error)
	sharing *ib.Sharing
	srq     *verbs.SRQ
	undo    cleanup.Stack
	open    base.List[*EP] // EPs that are not closed
	closing base.List[*EP] // closed EPs whose work requests are in flight
	cqLost  bool           // the completion queue has failed
	closed  bool

	leaveLimit time.Duration // disconnectLimit; tests of what comes before it set more

	asyncMu sync.Mutex
	async   []qpFault // what the device reported, until Progress looks
}

// Bits of Iface.Attn, beside ib.Raised.
const (
	attnBacklog = 1 << iota // finish has something to do
	attnPending             // requests wait in arb
)

func (it *Iface) raise(bit uint32) {
	if it.Attn.Load()&bit == 0 {
		it.Attn.Or(bit)
	}
}

var (
	_ uct.Iface    = (*Iface)(nil)
	_ ib.EventSink = (*Iface)(nil)
)

// maxScratch bounds TX_MAX_INLINE in effect: longer copies belong in bounce
// buffers. It is above what an mlx5 WQE of maximal length (1 KiB) takes inline.
const maxScratch = 1 << 10

// prepare fills the parts of work requests that never change.
func (it *Iface) prepare() {
	it.MaxInline = min(int(it.cfg.TxMaxInline), maxScratch)
	it.Moderation = uint64(it.cfg.Moderation)
	it.leaveLimit = disconnectLimit
	it.sges = make([]verbs.SGE, 0, it.cfg.TxMaxSGE)
	it.wc = make([]verbs.WC, it.cfg.MaxPoll)
	it.put[0].Opcode = verbs.OpRDMAWrite
	it.am[0].Opcode = verbs.OpSendWithImm
	it.am[0].Inline = it.scratch[:]
	it.fetch[0].SGList = it.fetchSGE[:]
	it.write[0].Opcode, it.write[0].SGList = verbs.OpRDMAWrite, it.oneSGE[:]
	it.read[0].Opcode, it.read[0].SGList = verbs.OpRDMARead, it.oneSGE[:]
	slot, _ := it.slots.Get()
	it.discard = it.slots.SGE(slot, 0, 8)
	it.fetchSGE[0] = it.discard
}

func (it *Iface) fillAttr() {
	seg := int(it.cfg.SegSize)
	msg := it.md.MaxMessage()
	sge := it.cfg.TxMaxSGE
	it.maxZcopy = msg
	it.attr = uct.IfaceAttr{
		Resource: uct.Resource{Transport: it.name, Device: it.port.Name, Kind: uct.DeviceNet},
		Caps: uct.CapAM | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapAtomic64 |
			uct.CapNotify | uct.CapPending | uct.CapConnectEP | uct.CapErrPeer | uct.CapErrRemoteMem |
			uct.CapEventFD | uct.CapInterNode | uct.CapCheckDevice,
		AM: uct.OpLimits{MaxShort: it.MaxInline, MaxBcopy: seg, MaxZcopy: seg,
			MaxIOV: sge - 1, MaxHeader: min(seg, maxHeader)},
		Put: uct.OpLimits{MaxShort: it.MaxInline, MaxBcopy: seg, MaxZcopy: msg, MaxIOV: sge},
		Get: uct.OpLimits{MaxBcopy: seg, MaxZcopy: msg, MaxIOV: sge},
		Atomic: uct.AtomicAttr{
			Post64:  uct.AtomicSet(uct.AtomicAdd),
			Fetch64: uct.AtomicSet(uct.AtomicAdd, uct.AtomicCSwap),
			Domain:  uct.AtomicDevice,
		},
		DeviceAddrLen: ib.DeviceAddrLen,
		EPAddrLen:     it.addrLen(),
	}
	if it.md.DeviceAttr().AtomicCap == verbs.AtomicGlob {
		it.attr.Atomic.Domain = uct.AtomicCPU
	}
	it.attr.Declare(it.port.Costs(it.cost))
}

const maxHeader = 256

func (it *Iface) addrLen() int {
	if it.links != nil {
		return it.links.AddrLen()
	}
	return rcwire.EPAddrLen
}

// Config is the configuration in effect.
func (it *Iface) Config() *Config { return &it.cfg }

// Find returns the EP whose QP has the number, or nil.
func (it *Iface) Find(qpn uint32) uct.EP { return it.eps.find(qpn).outer }

// Attr implements uct.Iface.
func (it *Iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface.
func (it *Iface) Ext() *uct.IfaceExt {
	return &uct.IfaceExt{Address: it, Wake: it, Pending: it, Watch: it, Stats: it, Measure: it.port.Measurer(&it.attr), Explain: it.port.Explainer()}
}

// SetAMHandler implements uct.Iface.
func (it *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.handlers.Set(id, h) }

// AddStats implements uct.Counted.
func (it *Iface) AddStats(n *stats.Node) { it.handlers.AddStats(n) }

// DeviceAddr implements uct.IfaceAddresser.
func (it *Iface) DeviceAddr(b []byte) []byte { return it.port.Addr.Append(b) }

// IfaceAddr appends nothing: endpoints connect.
func (it *Iface) IfaceAddr(b []byte) []byte { return b }

// Reachable implements uct.IfaceAddresser. ifaceAddr must be empty.
func (it *Iface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	if len(ifaceAddr) != 0 {
		return false, it.name + " has no iface address"
	}
	if _, err := it.port.Peer(deviceAddr); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// EventFD implements uct.Waker.
func (it *Iface) EventFD() int { return it.wake.FD() }

// EventPending implements uct.EventPender.
func (it *Iface) EventPending() bool { return it.wake.Pending() }

// Arm implements uct.Waker. Completions of sends and receives share one CQ, so an
// event of either kind wakes.
func (it *Iface) Arm(uct.Events) error { return it.wake.Arm(it.cq, it.patience()) }

// qpFault is an event of the device about a QP.
type qpFault struct {
	qp     *verbs.QP // nil: the event is about the completion queue
	status ucs.Status
	gone   verbs.GID // a device; else zero
}

// AsyncEvent notes an event that concerns a QP, or the completion queue; called on the goroutine
// of the MD.
func (it *Iface) AsyncEvent(ev verbs.AsyncEvent) {
	if ev.QP == nil && (ev.Type != verbs.EventCQErr || ev.CQ != it.verbsCQ) {
		return
	}
	fault := qpFault{qp: ev.QP, status: ucs.StatusConnReset}
	switch ev.Type {
	case verbs.EventQPFatal, verbs.EventCQErr:
	case verbs.EventQPReqErr, verbs.EventQPAccessErr: // the peer asked for what is not allowed: it is there
		fault.status = ucs.StatusIOError
	case verbs.EventPeerClosed:
		fault.status = ucs.StatusPeerClosed
	case verbs.EventUnreachable: // of a QP that carries the work requests of many EPs
		fault.gone = ev.GID
	default:
		return
	}
	it.asyncMu.Lock()
	it.async = append(it.async, fault)
	it.asyncMu.Unlock()
	it.wake.Raise()
}

// Flush implements uct.Iface: it completes when everything posted on every EP is
// complete. ErrNoResource if an EP cannot flush now.
func (it *Iface) Flush(c *uct.Completion) (pending bool, err error) {
	if c == nil {
		return it.flushPoll()
	}
	return it.flushAll(c)
}

// Fence implements uct.Iface.
func (it *Iface) Fence() error {
	var errs error
	for _, e := range it.open.All() {
		if err := e.Fence(); err != nil && !errors.Is(err, uct.ErrEPFailed) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// Close implements uct.Iface. It waits until the device has given up all memory
// of the iface. Arrivals are dropped. Idempotent.
func (it *Iface) Close() error {
	if it.closed {
		return nil
	}
	it.closed = true
	it.md.Unsubscribe(it)
	var errs error
	for it.open.Len() > 0 {
		errs = errors.Join(errs, it.open.All()[0].Close())
	}
	for _, e := range it.closing.All() {
		if e.link.Shared() {
			e.leaveSoon()
		}
	}
	if errs = errors.Join(errs, it.drain(), it.undo.Run()); errs != nil {
		return &ucs.OpError{TL: it.name, Dev: it.port.Name, Op: "close iface", Err: errs}
	}
	return nil
}

// drainTimeout bounds how long Close waits for a device that is broken: flushing
// a queue takes microseconds.
const drainTimeout = 5 * time.Second

// drain polls until no closed EP has work requests in flight.
func (it *Iface) drain() error {
	limit := timelimit.New(drainTimeout)
	if !limit.Poll(func() bool { return it.closing.Len() == 0 }, it.self.Progress) {
		return uct.Status(ucs.StatusTimedOut).Err()
	}
	return nil
}
