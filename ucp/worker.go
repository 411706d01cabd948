package ucp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Active messages that ucp itself uses.
const (
	amWireup  = 0 // handshake
	amRequest = 1 // an atomic for the target to execute
	amAnswer  = 2 // its result
)

// Worker drives communication: it owns the ifaces, and all EPs are made from one.
// One goroutine at a time owns a worker with all its EPs, keys and requests; the
// owner may change if the hand-over synchronises. Only Address and Signal may be
// called by any goroutine.
type Worker struct {
	ticks int          // calls of Progress until it looks at everything
	hot   progresser   // the first iface that is polled; never nil
	watch *ucs.Watch   // on hot
	more  []progresser // the others

	slow   bool          // there is more to do than to poll; see raise
	polled int           // ifaces that are polled
	idle   []*iface      // ifaces that rest and have a flag
	mute   []*iface      // ifaces that rest and have none
	ears   []unix.PollFd // their descriptors
	looks  uint          // calls of lookAtIdle

	ctx    *Context
	seat   *seat
	cfg    WorkerConfig
	ifaces []*iface
	addr   *wireup.Address
	packed []byte

	eps    epTable
	peers  map[string]*peer
	seqs   map[uint64]uint32 // connections made, by peer
	bySeq  map[connSeq]*EP
	byPeer map[remoteEP]*EP
	byLane map[uct.EP]*EP

	inbox     [][]byte // handshake messages that arrived
	broken    []brokenLane
	resting   []*iface // lost their last endpoint
	chores    []*EP
	spare     []*EP // chores, while it is worked off
	msg       packedMsg
	free      *Request
	inUse     int
	freeFrags *fragment
	remote    remoteTable
	pack      slicePacker

	scratch  uint64 // result of a blocking atomic
	lateKeys bool   // Config.KeyResolve is ResolveAtOp
	alarm    alarm

	parkMu    sync.Mutex // Signal reads park from any goroutine
	park      *parker    // nil until the first sleep
	parkLimit time.Duration
	closed    bool
	errs      []error // of closing transport endpoints, for Close
	stats     workerStats
}

// brokenLane is a transport endpoint that failed.
type brokenLane struct {
	ep  uct.EP
	err error
}

// NewWorker opens the transports that the context's configuration selects.
// Blocking. Close it before the context.
func (c *Context) NewWorker(cfg WorkerConfig) (_ *Worker, err error) {
	if err := c.hold(&c.workers); err != nil {
		return nil, fmt.Errorf("ucp: new worker: %w", err)
	}
	w := &Worker{
		ctx: c, cfg: cfg, lateKeys: c.cfg.KeyResolve == ResolveAtOp, hot: nothing{}, watch: quiet, parkLimit: parkLimit,
		addr:  &wireup.Address{UUID: randomID()},
		peers: map[string]*peer{}, seqs: map[uint64]uint32{},
		bySeq: map[connSeq]*EP{}, byPeer: map[remoteEP]*EP{}, byLane: map[uct.EP]*EP{},
	}
	if w.cfg.SpinPolls == 0 {
		w.cfg.SpinPolls = defaultSpinPolls
	}
	w.stats.init()
	var undo cleanup.Stack
	undo.Add(func() error { c.unhold(&c.workers); return nil })
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("ucp: new worker: %w", err), undo.Run())
		}
	}()
	if w.seat, err = c.takeSeat(); err != nil {
		return nil, err
	}
	undo.Add(func() error { c.giveSeat(w.seat); return nil })
	if err := w.open(&undo); err != nil {
		return nil, err
	}
	if w.packed, err = w.addr.Pack(); err != nil {
		return nil, err
	}
	return w, nil
}

// open opens the selected transports and, if none of them can carry handshakes
// though some need one, others of the same domains for that purpose only.
func (w *Worker) open(undo *cleanup.Stack) error {
	for _, name := range w.seat.names {
		w.addr.MDs = append(w.addr.MDs, wireup.MD{Component: name})
	}
	for i := range w.ctx.offers {
		if w.ctx.offers[i].selected {
			if err := w.openIface(&w.ctx.offers[i], undo); err != nil {
				return err
			}
		}
	}
	for i := range w.ctx.offers {
		if o := &w.ctx.offers[i]; !o.selected && w.lacksAux(o.md) {
			aux := *o
			aux.auxOnly = true
			if err := w.openIface(&aux, undo); err != nil {
				return err
			}
		}
	}
	if len(w.ifaces) > wireup.MaxResources {
		return fmt.Errorf("%d transports: %w", len(w.ifaces), ucs.ErrTooLong)
	}
	for _, i := range w.ifaces {
		i.rest()
	}
	return nil
}

// lacksAux reports that transports of a domain need handshakes and none of the
// open ones carries them.
func (w *Worker) lacksAux(md int) bool {
	need := false
	for _, i := range w.ifaces {
		caps := i.attr.Caps
		if caps.Has(capsAux) {
			return false
		}
		need = need || i.md == w.seat.number[md] && caps.Has(uct.CapConnectEP)
	}
	return need
}

// capsAux are what carries handshakes.
const capsAux = uct.CapAMBcopy | uct.CapConnectIface

// openIface opens a transport. One that is for handshakes only, and cannot carry
// them, is closed again.
func (w *Worker) openIface(o *offer, undo *cleanup.Stack) error {
	n := len(w.ifaces)
	md := w.seat.number[o.md]
	u, err := w.seat.domains[o.md].md.OpenIface(uct.IfaceParams{
		Transport:  o.Transport,
		Device:     o.Device,
		Endpoints:  w.ctx.cfg.IBEndpoints,
		PollIdleTx: w.ctx.cfg.PollIdleTx,
		OnError:    w.laneBroke,
	})
	if err != nil {
		return fmt.Errorf("open %s/%s: %w", o.Transport, o.Device, err)
	}
	if o.auxOnly && !u.Attr().Caps.Has(capsAux) {
		return u.Close()
	}
	undo.Add(u.Close)
	i := &iface{Iface: u, w: w, attr: u.Attr(), domain: w.seat.domains[o.md], md: md, index: n}
	i.linger.i = i
	i.waker, _ = u.(uct.Waker)
	i.pender, _ = u.(uct.EventPender)
	res := wireup.NewResource(i.attr, md)
	res.AuxOnly = o.auxOnly
	if a, ok := u.(uct.IfaceAddresser); ok {
		res.DeviceAddr = a.DeviceAddr(nil)
		if i.attr.Caps.Has(uct.CapConnectIface) {
			res.IfaceAddr = a.IfaceAddr(nil)
		}
	}
	w.ifaces = append(w.ifaces, i)
	w.stats.addIface(o.Transport, o.Device, u)
	w.addr.Resources = append(w.addr.Resources, res)
	return w.setHandlers(i)
}

func (w *Worker) setHandlers(i *iface) error {
	if i.attr.Caps&uct.CapAM == 0 {
		return nil
	}
	return errors.Join(
		i.SetAMHandler(amWireup, uct.AMHandlerFunc(w.handleWireup)),
		i.SetAMHandler(amRequest, uct.AMHandlerFunc(w.handleRequest)),
		i.SetAMHandler(amAnswer, uct.AMHandlerFunc(w.handleAnswer)),
	)
}

// Context is the context that the worker was made from.
func (w *Worker) Context() *Context { return w.ctx }

// Address is what a peer passes to NewEP. It is the caller's. Any goroutine.
func (w *Worker) Address() []byte { return append([]byte(nil), w.packed...) }

// Close closes the worker and its EPs. Operations in progress end with
// StatusCanceled; flush first to avoid that. Peers are told if that needs no
// waiting, and find out by themselves otherwise. Idempotent.
func (w *Worker) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	for _, e := range w.eps.all() {
		w.expel(e)
	}
	for range farewellPolls {
		if w.Progress() == 0 && w.eps.len() == 0 {
			break
		}
	}
	for _, e := range w.eps.all() {
		e.destroy()
	}
	errs := w.errs
	for _, i := range slices.Backward(w.ifaces) {
		errs = append(errs, i.Close())
	}
	w.alarm.stop()
	w.hot, w.watch, w.more, w.idle, w.mute = nothing{}, quiet, nil, nil, nil
	if w.park != nil {
		errs = append(errs, w.park.close())
	}
	w.ctx.giveSeat(w.seat)
	w.ctx.unhold(&w.ctx.workers)
	return errors.Join(errs...)
}

// farewellPolls bounds how long Close tries to get its last messages out: some
// tens of microseconds, enough for a peer that listens.
const farewellPolls = 1000

// expel closes an EP at the end of its worker.
func (w *Worker) expel(e *EP) {
	if e.ending {
		return
	}
	e.passive = true // the user's Close has nothing left to do
	if e.state == epFailed {
		e.end()
		return
	}
	if e.state == epClosing {
		e.abort(ucs.StatusCanceled)
		e.closeFlushed()
		return
	}
	if r, _ := e.Close(CloseForce); r != nil {
		r.Release()
	}
}

// keep notes an error for Close.
func (w *Worker) keep(err error) {
	if err != nil {
		w.errs = append(w.errs, err)
	}
}

// takeSeq numbers the next connection to a peer.
func (w *Worker) takeSeq(uuid uint64) uint32 {
	seq := w.seqs[uuid]
	w.seqs[uuid] = seq + 1
	return seq
}

// adopt hands out a connection that the peer has made already under the number
// that the next one of ours would have; nil if there is none.
func (w *Worker) adopt(p *peer) *EP {
	uuid := p.addr.UUID
	if uuid == w.addr.UUID {
		return nil
	}
	e := w.bySeq[connSeq{uuid, w.seqs[uuid]}]
	if e == nil || !e.passive || e.state != epOpen {
		return nil
	}
	w.takeSeq(uuid)
	e.passive, e.adopted = false, true
	return e
}

// forget takes an EP out of the tables by which messages find it without naming it.
func (w *Worker) forget(e *EP) {
	key := connSeq{e.peer.addr.UUID, e.seq}
	if w.bySeq[key] == e {
		delete(w.bySeq, key)
	}
	if e.link != nil {
		delete(w.byPeer, remoteEP{e.peer.addr.UUID, e.link.conn.RemoteEP()})
	}
}
