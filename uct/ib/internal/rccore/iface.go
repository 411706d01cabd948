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
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/internal/wake"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Iface is an open interface of a transport, which embeds it or uses it as it is. Open opens it.
type Iface struct {
	// Fields that every post and Progress accesses.
	poller   Poller
	cq       CompQueue
	watch    *ucs.Watch      // of cq
	Attn     atomic.Uint32   // reasons for the slow path of Progress: attn bits, wake.Raised
	put      [1]verbs.SendWR // RDMA write, inline
	am       [1]verbs.SendWR // send with immediate, inline
	fetch    [1]verbs.SendWR // read or atomic into a slot, fetchSGE
	write    [1]verbs.SendWR // write from one SGE, oneSGE
	read     [1]verbs.SendWR // read to one SGE, oneSGE
	oneSGE   [1]verbs.SGE
	listWR   [1]verbs.SendWR // write or read with a list of SGEs
	otherWR  [1]verbs.SendWR // all other work requests
	fetchSGE [1]verbs.SGE
	discard  verbs.SGE // destination of old values that are not returned
	wc       []verbs.WC
	recent   [256]*EP // cache indexed by the low byte of the QPN: EPs, or &eps.vacant

	MaxInline  int    // maximum length of a short operation
	maxZcopy   int    // maximum length of a zero-copy write or read
	Moderation uint64 // maximum consecutive unsignaled work requests of an EP

	eps                 epTable
	wake                *wake.Source
	arb                 base.Arbiter
	handlers            base.AMTable
	events              []qpFault // events that handleEvents has removed from async
	flushed             []flushedEP
	tx                  *buffer.Pool // bounce buffers
	slots               *buffer.Pool // slots of ops and EPs, and discard
	ops                 opPool
	signalsDeferred     bool // runDeferred must call postSignals
	groups              base.FlushGroups
	rx                  *buffer.RecvQueue
	creditReturners     *EP   // EPs that must return credits, linked by next
	cqFree              int   // unreserved CQ slots
	reservers           []*EP // EPs with reserved CQ slots, unordered
	releases            releaseQueue
	lastDisconnectCheck time.Duration // time of the last check of closed EPs, in the clock of timelimit.Now
	disconnecting       bool          // closed EPs may have time limits
	// slotsInUse: the last reclaim left no unused reserved slot. runDeferred clears it, because completions free slots.
	slotsInUse bool
	sges       []verbs.SGE
	scratch    [maxScratch]byte // the data of a short message during its post

	name    string
	self    uct.Iface // the Iface of the user: this one, or one that embeds it
	driver  Driver
	ext     Extension // nil: none
	links   Links     // nil: QPs
	extCQ   int
	cost    time.Duration // declared overhead of a post
	verbsCQ *verbs.CQ
	md      *ib.MD
	port    *ibport.Port
	cfg     Config
	attr    uct.IfaceAttr
	onError func(uct.EP, error)
	sharing *ib.Sharing
	srq     *verbs.SRQ
	undo    cleanup.Stack
	open    base.List[*EP] // EPs that are not closed
	closing base.List[*EP] // closed EPs whose work requests are in flight
	traffic base.Traffic
	cqLost  bool // the completion queue has failed
	closed  bool

	disconnectTimeout time.Duration // the constant, or more in a test that must not reach it

	asyncMu sync.Mutex
	async   []qpFault // events of the device that Progress has not handled
}

// Bits of Iface.Attn, in addition to wake.Raised.
const (
	attnDeferred = 1 << iota // runDeferred must run
	attnPending              // requests wait in arb
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

// maxScratch is the maximum of TX_MAX_INLINE in effect: longer data belongs in bounce buffers. It
// is more than the maximum inline data of an mlx5 WQE of 1 KiB.
const maxScratch = 1 << 10

// initWRs initializes the constant parts of work requests.
func (it *Iface) initWRs() {
	it.MaxInline = min(int(it.cfg.TxMaxInline), maxScratch)
	it.Moderation = uint64(it.cfg.Moderation)
	it.disconnectTimeout = disconnectTimeout
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
		DeviceAddrLen: ibport.DeviceAddrLen,
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

// Config returns the configuration in effect.
func (it *Iface) Config() *Config { return &it.cfg }

// Find returns the EP of a QPN, or nil.
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
func (it *Iface) AddStats(n *stats.Node) {
	it.handlers.AddStats(n)
	it.traffic.AddSent(n, "work_requests")
}

// UpdateStats implements uct.StatsUpdater.
func (it *Iface) UpdateStats() {
	var posted uint64
	for _, l := range []*base.List[*EP]{&it.open, &it.closing} {
		for _, e := range l.All() {
			posted += e.PI
		}
	}
	it.traffic.Update(posted, 0)
}

// DeviceAddr implements uct.IfaceAddresser.
func (it *Iface) DeviceAddr(b []byte) []byte { return it.port.Addr.Append(b) }

// IfaceAddr implements uct.IfaceAddresser. It appends nothing: EPs connect, not ifaces.
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

// Arm implements uct.Waker. Sends and receives share one CQ, so it always arms events of both.
func (it *Iface) Arm(uct.Events) error { return it.wake.Arm(it.cq, it.progressInterval()) }

// qpFault is an asynchronous event of the device about a QP.
type qpFault struct {
	qp     *verbs.QP // nil: the event is about the completion queue
	status ucs.Status
	gone   verbs.GID // GID of a device that does not exist any more, or zero
}

// AsyncEvent records an event of a QP or of the completion queue. The goroutine of the MD calls it.
func (it *Iface) AsyncEvent(ev verbs.AsyncEvent) {
	if ev.QP == nil && (ev.Type != verbs.EventCQErr || ev.CQ != it.verbsCQ) {
		return
	}
	fault := qpFault{qp: ev.QP, status: ucs.StatusConnReset}
	switch ev.Type {
	case verbs.EventQPFatal, verbs.EventCQErr:
	case verbs.EventQPReqErr, verbs.EventQPAccessErr: // the device rejected a request of the peer, which is alive
		fault.status = ucs.StatusIOError
	case verbs.EventPeerClosed:
		fault.status = ucs.StatusPeerClosed
	case verbs.EventUnreachable: // the QP carries the work requests of many EPs
		fault.gone = ev.GID
	default:
		return
	}
	it.asyncMu.Lock()
	it.async = append(it.async, fault)
	it.asyncMu.Unlock()
	it.wake.Raise()
}

// Flush implements uct.Iface. It completes when all work requests posted on all EPs are complete.
// It returns ErrNoResource if an EP cannot flush now.
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

// Close implements uct.Iface. It waits until the device no longer uses memory of the iface, and
// drops messages that arrive. A second call does nothing.
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
			e.startDisconnectLimit()
		}
	}
	errs = errors.Join(errs, it.drain())
	it.UpdateStats()
	if errs = errors.Join(errs, it.undo.Run()); errs != nil {
		return &ucs.OpError{TL: it.name, Dev: it.port.Name, Op: "close iface", Err: errs}
	}
	return nil
}

// drainTimeout is the maximum time that Close waits for a broken device. Flushing a queue takes
// microseconds.
const drainTimeout = 5 * time.Second

// drain polls until no closed EP has work requests in flight.
func (it *Iface) drain() error {
	limit := timelimit.New(drainTimeout)
	if !limit.Poll(func() bool { return it.closing.Len() == 0 }, it.self.Progress) {
		return uct.Status(ucs.StatusTimedOut).Err()
	}
	return nil
}
