package sm

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/gucx/gucx/internal/attach"
	"github.com/gucx/gucx/internal/cma"
	"github.com/gucx/gucx/internal/mmio"
	"github.com/gucx/gucx/internal/race"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// EP is a connection to an iface of this or another process.
type EP struct {
	tx       producer
	ctl      *control // the peer's
	pending  base.PendingQueue
	guard    guard
	table    table
	arena    unsafe.Pointer
	arenaLen uint64
	maxShort int            // bytes of a short put
	maxGet   int            // bytes of a short get; negative: there is none
	hold     atomic.Uint32  // nonzero: nothing may be posted now; hold bits
	attn     *atomic.Uint32 // the own attention word at the peer
	wakeFD   int            // the peer's

	iface   *Iface
	state   epState
	gid     [ifaceAddrLen]byte
	out     *attach.Outbound
	cause   error // why lost was called; nil: the peer is gone
	reason  error // of the failure
	asks    askQueue
	cmaErr  error // why cross-memory attach is not used; nil: it is
	pid     int
	vec     cma.Vec
	scratch []byte // of PutBcopy and GetBcopy
	base.Slot
}

// Bits of EP.hold.
const (
	holdDown  = 1 << iota // the peer is gone: Progress will fail the EP; by any goroutine
	holdFence             // a fence waits for asks
	holdLent              // an unpacker has the peer's memory
)

// holdFenced sets or clears holdFence.
func (e *EP) holdFenced(on bool) {
	if on {
		e.hold.Or(holdFence)
	} else if e.hold.Load()&holdFence != 0 {
		e.hold.And(^uint32(holdFence))
	}
}

// lost has Progress fail the EP. Any goroutine may call it.
func (e *EP) lost() {
	e.hold.Or(holdDown)
	e.iface.post()
}

// epState is how far a connection is.
type epState uint8

const (
	epIdle    epState = iota // nothing was posted yet
	epDialing                // a goroutine dials
	epUp
	epFailed
	epClosed
)

// dialed is how a dial ended.
type dialed struct {
	ep  *EP
	out *attach.Outbound
	err error
}

var (
	_ uct.EP        = (*EP)(nil)
	_ uct.AMSender  = (*EP)(nil)
	_ uct.Putter    = (*EP)(nil)
	_ uct.Getter    = (*EP)(nil)
	_ uct.Atomics   = (*EP)(nil)
	_ uct.Explainer = (*EP)(nil)
)

// NewEP implements uct.Iface. It connects at the first post. Errors: ErrInvalidAddr,
// ErrUnreachable.
func (it *Iface) NewEP(p uct.EPParams) (uct.EP, error) {
	gid, err := peerGID(it.device, p.DeviceAddr, p.IfaceAddr)
	if err == nil && p.IfaceAddr == nil {
		err = uct.ErrInvalidAddr
	}
	if err == nil && it.closed {
		err = uct.ErrClosed
	}
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: DeviceName, Op: "new ep", Err: err}
	}
	e := &EP{iface: it, gid: gid, maxShort: it.attr.Put.MaxShort, maxGet: -1}
	if it.attr.Caps.Has(uct.CapGetShort) {
		e.maxGet = it.attr.Get.MaxShort
	}
	it.open.Add(e)
	return e, nil
}

// ready reports whether a direct post is possible, in the usual case.
func (e *EP) ready() bool { return e.tx.slots != nil && e.hold.Load() == 0 && !e.pending.Blocks() }

// refused says why a post is not possible now, and starts to connect.
//
//go:noinline
func (e *EP) refused() error {
	switch e.state {
	case epIdle:
		e.dial()
	case epFailed:
		return e.reason
	case epClosed:
		return uct.ErrClosed
	}
	return uct.ErrNoResource
}

// dial starts to connect.
func (e *EP) dial() {
	e.state = epDialing
	it := e.iface
	it.dials.Go(func() {
		out, err := it.port.Dial(context.Background(), e.gid)
		it.mu.Lock()
		it.dialed = append(it.dialed, dialed{e, out, err})
		it.mu.Unlock()
		it.post()
	})
}

// connected takes the result of a dial over.
func (e *EP) connected(out *attach.Outbound, err error) int {
	if e.state != epDialing {
		if out != nil {
			_ = out.Close() // unmapping what is mapped does not fail
		}
		return 0
	}
	if err == nil {
		if err = e.adopt(out); err != nil {
			_ = out.Close()
		}
	}
	if err != nil {
		e.fail(err)
		return 1
	}
	e.state = epUp
	out.AfterDown(e.lost)
	return 1
}

// adopt checks what the peer offers, and tells it what it will get.
func (e *EP) adopt(out *attach.Outbound) error {
	it := e.iface
	arena, seg := out.Arena.Bytes(), out.Seg.Bytes()
	hdr := headerOf(seg)
	e.ctl = controlAt(arena, hdr.acceptorControl)
	e.attn = attentionAt(e.ctl, hdr.attention)
	e.table = newTable(out.Table.Bytes())
	if e.attn == nil || len(out.Table.Bytes()) < tableLen || e.table.header().version.Load() != layoutVersion {
		return fmt.Errorf("%w: segments of the peer", uct.ErrInvalidAddr)
	}
	e.arena, e.arenaLen = unsafe.Pointer(unsafe.SliceData(arena)), uint64(len(arena))
	e.wakeFD, e.out, e.pid = out.WakeFD, out, out.PeerPID
	fenced := !it.md.expedited || e.table.header().expedited.Load() == 0
	e.guard = guard{word: &hdr.guard, fenced: fenced}
	segLen := (int(it.cfg.SegSize) + 63) &^ 63
	if e.probe(); e.cmaErr != nil && it.cfg.CMA == config.Yes {
		return fmt.Errorf("registered memory, with CMA=y: %w", e.cmaErr)
	}
	e.tx = newProducer(seg, it.cfg.FIFOSize, it.cfg.Segs, segLen, fenced)
	e.asks.open(it.cfg.Segs)
	hdr.depth, hdr.segs, hdr.segLen, hdr.dialerControl = uint32(it.cfg.FIFOSize), uint32(it.cfg.Segs), uint32(segLen), it.ctlIndex
	race.Release(unsafe.Pointer(&order))
	hdr.ready.Store(1)
	return nil
}

// fail makes the EP refuse work.
func (e *EP) fail(err error) {
	e.reason = fmt.Errorf("%w: %w", uct.ErrEPFailed, err)
	e.state = epFailed
	e.detach(ucs.StatusConnReset)
	if f := e.iface.onError; f != nil {
		f(e, e.reason)
	}
}

// detach ends what is under way with st and gives the link up.
func (e *EP) detach(st uct.Status) {
	e.tx.slots = nil
	e.cancelAsks(st)
	if e.out != nil {
		_ = e.out.Close() // unmapping what is mapped does not fail
		e.out = nil
	}
}

// room reports whether every kind of post would find resources.
func (e *EP) room() bool {
	return e.tx.slots != nil && e.hold.Load() == 0 && e.tx.room() && e.asks.room()
}

// AddPending implements uct.EP.
func (e *EP) AddPending(r *uct.PendingReq) error {
	switch {
	case e.state == epFailed || e.state == epClosed:
		return e.refused()
	case e.state == epIdle, e.pending.Empty() && e.room():
		return uct.ErrBusy // the first post is what connects
	}
	return e.iface.arb.Add(&e.pending, r)
}

// PurgePending implements uct.EP.
func (e *EP) PurgePending(f func(*uct.PendingReq)) { e.iface.arb.Purge(&e.pending, f) }

// Fence implements uct.EP. What this side does itself is done; what the peer was
// asked for has to end before anything else is posted, as that may be a direct access.
func (e *EP) Fence() error {
	if e.state == epFailed {
		return e.reason
	}
	e.holdFenced(!e.asks.empty())
	mmio.ToDevice()
	return nil
}

// Close implements uct.EP. Messages that were sent are still delivered.
func (e *EP) Close() error {
	if e.state == epClosed {
		return nil
	}
	e.state = epClosed
	e.detach(ucs.StatusCanceled)
	e.iface.open.Remove(e)
	return nil
}
