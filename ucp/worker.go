package ucp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/ucp/internal/conn"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Worker owns open transports (ifaces) and makes their progress, and has the EPs that use them.
// One goroutine at a time owns a worker with all its EPs, keys and requests. The
// owner may change if the goroutines synchronize. Any goroutine may call Address, Signal and
// Inspect, and Close while the owner is in a blocking call.
type Worker struct {
	engine engine.Engine
	pool   requestPool
	tag    tagState
	owner  engineOwner

	ctx       *Context
	protocols []*protocol // fixed after NewWorker
	ifaces    []*iface
	net       network
	shared    *SharedWorker // the SharedWorker of this worker; nil without one

	eps   handle.Table[*EP] // by id: messages contain the id; a peer knows only the ids of its own EPs
	peers conn.Peers
	names conn.Names[*EP]
	lanes laneTable

	todo      todo
	completed completedOps
	msg       packedMsg
	packing   bool                   // a transport is calling a Packer
	carrier   func(*EP) conn.Carrier // makes the carrier of an EP's handshake

	bufferWaitLimit time.Duration // how long an abandoned blocking call waits for its buffer
	closed          bool
	errs            closeErrors
	stats           workerStats

	// State of protocols; the state of tagged messages is above.
	messages    messageState
	tuples      *tuples // nil if messages use no tuple queues; see tuple.go
	active      activeHandlers
	streams     streamState
	transfers   transferState
	rma         rmaState
	connecting  connectState
	inspections inspections
}

// todo is the deferred work of a worker.
type todo struct {
	broken   []brokenLane
	deferred []*EP
	spare    []*EP // the previous array of deferred, for reuse
}

// laneTable is the table of lanes of all EPs of a worker.
type laneTable struct {
	links  []*link // of EPs that have one, in no order
	byEP   map[uct.EP]laneOwner
	groups []region.Group // sets of domains over which lanes share transfers
}

// brokenLane is a transport endpoint that failed.
type brokenLane struct {
	ep  uct.EP
	err error
}

// newWorker is NewWorker with the given protocols.
func (c *Context) newWorker(cfg WorkerConfig, protocols []*protocol) (_ *Worker, err error) {
	if err := c.addWorker(); err != nil {
		return nil, fmt.Errorf("ucp: new worker: %w", err)
	}
	w := &Worker{
		ctx: c, protocols: protocols, bufferWaitLimit: ucs.RevokeLimit,
		net: network{addr: &wireup.Address{}}, lanes: laneTable{byEP: map[uct.EP]laneOwner{}},
	}
	if err := w.peers.Init(w.net.addr, w.reacher); err != nil {
		c.removeWorker()
		return nil, fmt.Errorf("ucp: new worker: %w", err)
	}
	w.names.Init()
	w.owner.w = w
	w.engine.Init(&w.owner, cmp.Or(cfg.SpinPolls, c.cfg.SpinPolls), c.cfg.Study.ProgressIdle)
	w.stats.init(&w.engine.Sleeps)
	w.each(func(p *protocol) func(*Worker) { return p.init })
	var undo cleanup.Stack
	undo.Add(func() error { c.removeWorker(); return nil })
	undo.Add(func() error { w.each(func(p *protocol) func(*Worker) { return p.closing }); return nil })
	defer func() {
		if err != nil {
			err = ucs.Join(fmt.Errorf("ucp: new worker: %w", err), undo.Run())
		}
	}()
	if err := w.open(&undo); err != nil {
		return nil, err
	}
	if err := w.publish(); err != nil {
		return nil, err
	}
	return w, nil
}

// open opens the selected transports. If transports of a domain need a handshake and no open
// transport can carry it to all their peers, open also opens other transports of that domain, for handshakes only.
func (w *Worker) open(undo *cleanup.Stack) error {
	for _, d := range w.ctx.memory.Domains {
		w.net.addr.MDs = append(w.net.addr.MDs, wireup.MD{Component: d.Attr.Component})
	}
	for i := range w.ctx.offers {
		if w.ctx.offers[i].selected {
			if err := w.openIface(&w.ctx.offers[i], undo); err != nil {
				return err
			}
		}
	}
	for i := range w.ctx.offers {
		if o := &w.ctx.offers[i]; !o.selected && !o.Explicit && w.lacksAux(o.domain) {
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
	w.engine.Start()
	return nil
}

// lacksAux reports whether a transport of a domain needs handshakes and no open transport can carry them to
// all its peers.
func (w *Worker) lacksAux(d *region.Domain) bool {
	return slices.ContainsFunc(w.ifaces, func(i *iface) bool {
		return i.domain == d && i.attr.Caps.Has(uct.CapConnectEP) && !w.hasAux(i.attr.Resource.Kind)
	})
}

// hasAux reports whether an open transport can carry handshakes to the peers of a device of the given kind. Shared
// memory and self reach peers of this host only, a network also those of other hosts; tcp does so on the devices of
// GUCX_TCP_DEVICES, and by itself on loopback only.
func (w *Worker) hasAux(kind uct.DeviceKind) bool {
	return slices.ContainsFunc(w.ifaces, func(i *iface) bool {
		aux := i.attr.Resource.Kind
		return i.attr.Caps.Has(capsAux) && (aux == uct.DeviceNet || aux == kind)
	})
}

// capsAux is the capabilities of a transport that can carry handshakes.
const capsAux = uct.CapAMBcopy | uct.CapConnectIface

// openIface opens a transport. If it is only for handshakes, and cannot carry
// them, it is closed again.
func (w *Worker) openIface(o *offer, undo *cleanup.Stack) error {
	u, err := w.openOffer(o)
	if err != nil {
		return err
	}
	if o.auxOnly && !u.Attr().Caps.Has(capsAux) {
		return u.Close()
	}
	undo.Add(u.Close)
	i := w.newIface(o, u)
	w.engine.Add(&i.Iface, u)
	return w.enterIface(o, i)
}

func (w *Worker) openOffer(o *offer) (uct.Iface, error) {
	u, err := o.domain.MD.OpenIface(uct.IfaceParams{
		Transport: o.Transport,
		Device:    o.Device,
		OnError:   w.laneBroke,
		Token:     w.ctx.token,
		Listener:  o.listener,

		IdleTimeout: w.ctx.cfg.idleTimeout(),
	})
	if err != nil {
		return nil, fmt.Errorf("open %s/%s: %w", o.Transport, o.Device, err)
	}
	return u, nil
}

// newIface makes the record of an open transport. The caller must add it to the engine.
func (w *Worker) newIface(o *offer, u uct.Iface) *iface {
	ext := u.Ext()
	i := &iface{w: w, attr: u.Attr(), domain: o.domain, index: len(w.ifaces), addr: ext.Address, port: ext.Port, dials: ext.Dials, writes: ext.Push != nil}
	if w.ctx.cfg.Costs != CostsDeclared {
		i.measure = ext.Measure
	}
	return i
}

// enterIface adds an iface of the engine to the worker and to its address.
func (w *Worker) enterIface(o *offer, i *iface) error {
	res := wireup.NewResource(i.attr, o.domain.Index)
	res.AuxOnly = o.auxOnly
	if i.addr != nil {
		res.DeviceAddr = i.addr.DeviceAddr(nil)
		if i.attr.Caps.Has(uct.CapConnectIface) {
			res.IfaceAddr = i.addr.IfaceAddr(nil)
		}
	}
	w.ifaces = append(w.ifaces, i)
	w.stats.addIface(o.Transport, o.Device, i.Ext().Stats)
	w.net.addr.Resources = append(w.net.addr.Resources, res)
	w.ifaceOpened(i)
	return w.setHandlers(i)
}

func (w *Worker) setHandlers(i *iface) error {
	if i.attr.Caps&uct.CapAM == 0 {
		return nil
	}
	return ucs.Join(
		w.setUnknown(i),
		w.protocolHandlers(i), // may replace handlers of unknown ids: a protocol may use an id from wire.AMUnknown on
	)
}

// Context is the context of the worker.
func (w *Worker) Context() *Context { return w.ctx }

// Address returns the address of the worker, which peers pass to NewEP. The slice belongs to the caller. Listen and
// Dial may add network devices to the address; see [Worker.Listen], "Network". Any goroutine may call it.
func (w *Worker) Address() []byte {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return slices.Clone(w.net.packed)
}

// Close closes the worker and its EPs. Operations in progress complete with StatusCanceled; flush
// first to avoid that. Each transport notifies connected peers, which takes
// microseconds, or some 100 ms if a peer does not receive the notification; the transport of that peer detects the close
// later. Close memory after the worker: a peer in the middle of an access then gets
// ErrPeerClosed, and not ErrRemoteAccess. Idempotent. The error lists failures of closing, also of
// transport endpoints that were closed earlier: the first 16 and the number of
// others.
//
// Any goroutine may close a worker whose owner is in a blocking call, such as Serve: the
// call returns an error that wraps ErrClosed when the worker is closed. Otherwise, and if the
// owner may be in [EP.FlushWait], only the owner may call Close. Callbacks must not.
func (w *Worker) Close() error {
	w.engine.BeginClose()
	defer w.engine.EndClose()
	if w.closed {
		return nil
	}
	w.closed = true
	w.each(func(p *protocol) func(*Worker) { return p.closing })
	for e := range w.eps.All() {
		w.forceClose(e)
	}
	w.each(func(p *protocol) func(*Worker) { return p.epsClosed })
	for range disconnectPolls {
		if w.Progress() == 0 && w.eps.Len() == 0 {
			break
		}
	}
	eps := slices.Collect(w.eps.All())
	for _, e := range eps {
		e.destroy()
	}
	errs := append(w.errs.all(), w.engine.Stop()...)
	for _, e := range eps {
		e.finishClose()
	}
	w.reportCompleted()
	w.each(func(p *protocol) func(*Worker) { return p.closed })
	errs = append(errs, w.freeProtocols())
	w.ctx.removeWorker()
	return ucs.Join(append(errs, w.engine.Close())...) // last: it lets the blocking call of the owner return, who may close the context
}

// Signal wakes the goroutine that waits in a blocking call of the worker, which
// then makes progress; the function of Until is called again before the next sleep. Any goroutine may call it. It takes a few
// nanoseconds unless that goroutine sleeps or the worker has an [Worker.FD].
func (w *Worker) Signal() { w.engine.Signal() }

// disconnectPolls limits the polls in which Close sends its last messages. They take some tens of
// microseconds, which is enough if the peer makes progress.
const disconnectPolls = 1000

// forceClose closes an EP because its worker closes.
func (w *Worker) forceClose(e *EP) {
	if e.closing.ending {
		return
	}
	e.origin.passive = true // no user may close it any more
	if e.state == epFailed {
		e.destroyWhenIdle()
		return
	}
	e.abortAndDisconnect()
}

// addCloseError stores an error, which Close returns.
func (w *Worker) addCloseError(err error) { w.errs.add(err) }

// closeErrors is errors of objects that were closed before the worker.
type closeErrors struct {
	first []error // at most maxCloseErrors
	more  int     // number of errors after these
}

// maxCloseErrors limits the stored errors: each of many EPs may add one.
const maxCloseErrors = 16

func (c *closeErrors) add(err error) {
	switch {
	case err == nil:
	case len(c.first) < maxCloseErrors:
		c.first = append(c.first, err)
	default:
		c.more++
	}
}

// all returns the stored errors, and one error with the number of the others.
func (c *closeErrors) all() []error {
	if c.more == 0 {
		return c.first
	}
	return append(c.first, fmt.Errorf("and %d errors more", c.more))
}

// adopt returns the passive EP that the peer has made under the number of our next EP to it, or nil
// if there is none. A connection of a worker with the same UUID and another address does not belong
// to the peer.
func (w *Worker) adopt(p *conn.Peer) *EP {
	uuid := p.Addr.UUID()
	if uuid == w.net.addr.UUID() {
		return nil
	}
	e := w.names.NextByPeer(uuid)
	if e == nil || !e.origin.passive || e.state != epOpen || e.peer != p {
		return nil
	}
	w.names.Take(uuid)
	e.each(func(p *protocol) func(*EP) { return p.claimed })
	e.origin.passive, e.origin.unverified, e.origin.adopted = false, false, true
	e.countMade(false)
	if e.link != nil {
		e.link.reserveCarrier()
	}
	e.bind()
	return e
}

// removeEP removes an EP from the tables that find it by the peer's id or number.
func (w *Worker) removeEP(e *EP) {
	called := uint64(0)
	if e.link != nil {
		called = e.link.conn.RemoteEP()
	}
	w.names.Forget(e, e.peer.Addr.UUID(), e.seq, called)
}

// sender returns the EP with the id that a message contains. If no such EP accepts messages, it
// counts that and returns nil.
func (w *Worker) sender(name uint64) *EP {
	e := w.eps.Find(name)
	if e == nil || e.state != epOpen || e.link == nil || e.origin.unproven {
		return w.senderClosing(e)
	}
	return e
}

// connected returns the EP with the id that a later part of a message contains, or nil. The EP may
// be closing.
func (w *Worker) connected(name uint64) *EP {
	e := w.eps.Find(name)
	if e == nil || e.state > epClosing || e.link == nil || e.origin.unproven {
		return nil
	}
	return e
}
