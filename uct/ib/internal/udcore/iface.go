package udcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/buffer"
	"github.com/gucx/gucx/uct/ib/internal/dgram"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/internal/wake"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Iface is an open transport. A transport uses it directly or embeds it.
type Iface struct {
	comp    CompQueue
	send    SendQueue
	attn    atomic.Uint32 // wake.Raised
	qp      *verbs.QP     // nil once destroyed
	wake    *wake.Source
	acks    *conn            // conns that may have to send an acknowledgement, linked by nextAck
	active  base.List[*conn] // conns that wait for their peer
	urgent  *conn            // those of them that should not wait, linked by nextUrgent
	stalled *conn            // conns with packets for which the send queue had no room, linked by nextTx

	lastUrgent, lastStalled *conn // last elements of these lists; not valid while they are empty

	backlog  bool // finish has work
	polls    uint // number of calls of Progress with active conns since the last tick
	now      func() time.Duration
	lastTick time.Duration

	pi, ci   uint64 // number of datagrams posted, and of those known to be complete
	dataRoom uint64 // data packets may be posted while pi-ci < dataRoom: TxDepth, or 0 while stalled is not empty
	sig      uint64 // pi of the last signaled datagram
	wr       [1]verbs.SendWR
	sges     []verbs.SGE
	scratch  [minInline]byte // the control packet in progress
	wc       []verbs.WC

	arb        base.Arbiter
	handlers   base.AMTable
	pool       *buffer.Pool // bounce buffers; packets[i] has buffer i
	packets    []packet
	unread     *packet // acknowledged packets that the device may not have read yet
	unreadZops *zop    // the same for zops of closed EPs
	zops       zopPool
	flushes    flushPool
	groups     base.FlushGroups
	rx         *buffer.RecvQueue
	conns      handle.Counted[*conn] // by the id in packets without salt; a peer may send any id
	salt       uint32                // random bits of the ids, see newConn
	peers      map[peerKey]*peer
	params     dgram.Params
	mtu        int           // maximum length of a datagram in bytes
	strays     stats.Counter // number of datagrams that were dropped as invalid
	resends    stats.Counter // number of retransmissions

	name    string
	self    uct.Iface     // the uct.Iface of the user: this, or the one that embeds it
	cost    time.Duration // declared overhead of a post
	md      *ib.MD
	port    *ibport.Port
	cfg     Config
	attr    uct.IfaceAttr
	onError func(uct.EP, error)
	cq      *verbs.CQ
	sharing *ib.Sharing
	undo    cleanup.Stack
	open    base.List[*EP]
	closed  bool
	lost    lostPorts
	cqLost  atomic.Bool   // the device has reported an error of the completion queue
	fault   uatomic.Error // the first error of the QP
}

var (
	_ uct.Iface    = (*Iface)(nil)
	_ ib.EventSink = (*Iface)(nil)
)

// prepare initializes the state of the data path.
func (it *Iface) prepare() {
	start := time.Now()
	it.now = func() time.Duration { return time.Since(start) }
	it.peers, it.conns = map[peerKey]*peer{}, handle.Make[*conn](placeBits, idBits)
	it.salt = rand.Uint32() & (1<<idBits - 1)
	it.params = dgram.Params{
		Window: it.cfg.Window, Timeout: it.cfg.RTO, MaxTimeout: it.cfg.MaxRTO, PeerTimeout: it.cfg.Timeout,
	}
	it.dataRoom = uint64(it.cfg.TxDepth)
	it.packets = make([]packet, it.cfg.TxBuffers)
	for i := range it.packets {
		it.packets[i].buf = uint32(i)
	}
	it.wc = make([]verbs.WC, it.cfg.MaxPoll)
	it.sges = make([]verbs.SGE, 0, it.cfg.TxMaxSGE)
	it.flushes.grow(it.cfg.TxBuffers)
}

func (it *Iface) fillAttr() {
	payload := it.mtu - dgram.HeaderLen
	it.attr = uct.IfaceAttr{
		Resource: uct.Resource{Transport: it.name, Device: it.port.Name, Kind: uct.DeviceNet},
		Caps: uct.CapAM | uct.CapPending | uct.CapConnectIface | uct.CapErrPeer |
			uct.CapEventFD | uct.CapInterNode,
		AM: uct.OpLimits{
			MaxShort: min(int(it.cfg.TxMaxInline)-dgram.HeaderLen, payload),
			MaxBcopy: payload, MaxZcopy: payload,
			MaxIOV: min(it.cfg.TxMaxSGE-1, maxIOV), MaxHeader: min(maxHeader, payload),
		},
		DeviceAddrLen: ibport.DeviceAddrLen,
		IfaceAddrLen:  dgram.IfaceAddrLen,
	}
	it.attr.Declare(it.port.Costs(it.cost))
}

// maxHeader is the declared limit of the header of a zcopy message in bytes.
const maxHeader = 256

// Attr implements uct.Iface.
func (it *Iface) Attr() *uct.IfaceAttr { return &it.attr }

// Ext implements uct.Iface.
func (it *Iface) Ext() *uct.IfaceExt {
	return &uct.IfaceExt{Address: it, Wake: it, Pending: it, Stats: it, Measure: it.port.Measurer(&it.attr), Explain: it.port.Explainer()}
}

// SetAMHandler implements uct.Iface.
func (it *Iface) SetAMHandler(id uint8, h uct.AMHandler) error { return it.handlers.Set(id, h) }

// AddStats implements uct.Counted.
func (it *Iface) AddStats(n *stats.Node) {
	it.handlers.AddStats(n)
	n.Add("strays", &it.strays)
	n.Add("resends", &it.resends)
}

// DeviceAddr implements uct.IfaceAddresser.
func (it *Iface) DeviceAddr(b []byte) []byte { return it.port.Addr.Append(b) }

// IfaceAddr implements uct.IfaceAddresser.
func (it *Iface) IfaceAddr(b []byte) []byte { return it.ifaceAddr().Append(b) }

func (it *Iface) ifaceAddr() dgram.IfaceAddr {
	return dgram.IfaceAddr{MTU: it.port.Attr.ActiveMTU, QPN: it.qp.Number()}
}

// Reachable implements uct.IfaceAddresser.
func (it *Iface) Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string) {
	if _, err := it.port.Peer(deviceAddr); err != nil {
		return false, err.Error()
	}
	if ifaceAddr != nil {
		if _, err := it.peerIface(ifaceAddr); err != nil {
			return false, err.Error()
		}
	}
	return true, ""
}

// EventFD implements uct.Waker.
func (it *Iface) EventFD() int { return it.wake.FD() }

// EventPending implements uct.EventPender.
func (it *Iface) EventPending() bool { return it.wake.Pending() }

// Arm implements uct.Waker. It first sends the acknowledgements that are due. While an
// acknowledgement of a peer is outstanding, the descriptor also becomes readable at the
// retransmission timeout.
func (it *Iface) Arm(uct.Events) error {
	it.sendAcks()
	if it.acks != nil || it.backlog {
		return uct.ErrBusy
	}
	var patience time.Duration
	for i, c := range it.active.All() {
		if p := c.proto.Patience(); i == 0 || p < patience {
			patience = p
		}
	}
	it.polls = tickPolls // the first Progress after a sleep reads the clock
	return it.wake.Arm(it.comp, patience)
}

// AsyncEvent records an error of the QP or of its completion queue, or a port without a process. It
// is called on the goroutine of the MD.
func (it *Iface) AsyncEvent(ev verbs.AsyncEvent) {
	switch ev.Type {
	case verbs.EventCQErr:
		if ev.CQ == it.cq {
			it.cqLost.Store(true)
			it.wake.Raise()
		}
		return
	case verbs.EventUnreachable:
		if ev.QP == it.qp {
			it.noteUnreachable(ev.GID)
		}
		return
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventDeviceFatal:
	default:
		return
	}
	if ev.QP == nil || ev.QP == it.qp {
		it.noteFault("device", fmt.Errorf("asynchronous event %d", ev.Type))
	}
}

// noteFault makes the next Progress fail all connections. Only the first error counts. Any
// goroutine may call it.
func (it *Iface) noteFault(of string, why error) {
	it.fault.CompareAndSwap(nil, fmt.Errorf("%s: %w", of, why))
	it.wake.Raise()
}

// Flush implements uct.Iface.
func (it *Iface) Flush(c *uct.Completion) (pending bool, err error) {
	busy := 0
	for _, e := range it.open.All() {
		if e.err == nil && e.c.proto.Unacked() > 0 {
			busy++
		}
	}
	if busy == 0 {
		return false, nil
	}
	if c != nil && it.flushes.left < busy {
		return false, uct.ErrNoResource
	}
	var all *uct.Completion
	if c != nil {
		all = it.groups.Get(c, busy)
	}
	for _, e := range it.open.All() {
		if e.err == nil && e.c.proto.Unacked() > 0 {
			e.flush(all)
		}
	}
	return true, nil
}

// Fence implements uct.Iface. Messages of an EP are always in order.
func (it *Iface) Fence() error { return nil }

// Close implements uct.Iface. It sends each peer one FIN and does not wait for a reply. It drops
// arrivals. Idempotent.
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
	limit := timelimit.New(drainTimeout)
	for c := range it.conns.All() {
		_ = limit.Poll(it.hasSlot, it.self.Progress) // without a slot in time, the peer gets no FIN
		if c.proto.State() == dgram.Connected {
			it.control(c, c.proto.Control(dgram.CtlFin, false), 0)
		}
		it.drop(c, ucs.StatusCanceled)
	}
	if !limit.Poll(it.drained, it.self.Progress) {
		errs = errors.Join(errs, ucs.ErrTimedOut)
	}
	if errs = errors.Join(errs, it.undo.Run()); errs != nil {
		return &ucs.OpError{TL: it.name, Dev: it.port.Name, Op: "close iface", Err: errs}
	}
	return nil
}

// drainTimeout limits the time for which Close waits for a failed device.
const drainTimeout = 5 * time.Second

// drained reports whether the device does not use any memory, which does not depend on peers. The
// datagrams after the last signaled one were inline.
func (it *Iface) drained() bool { return it.ci >= it.sig }

func (it *Iface) opError(op string, err error) error {
	return &ucs.OpError{TL: it.name, Dev: it.port.Name, Op: op, Err: err}
}
