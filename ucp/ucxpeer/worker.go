package ucxpeer

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/internal/ucxwire"
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/match"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucxtcp"
)

// Worker exchanges messages with workers of UCX. One goroutine at a time owns it. Any goroutine may call Signal, and
// Close while the owner waits.
type Worker struct {
	cfg         Config
	uuid        uint64
	md          uct.MD
	tcp         *ucxtcp.Iface
	iface       engine.Iface // tcp
	attr        *uct.IfaceAttr
	zcopyMin    int // smallest length in bytes that is sent by zcopy
	engine      engine.Engine
	out         packet
	freeRequest *Request      // see recycle
	eagerMsg    ActiveMessage // the message of the running handler
	closed      bool

	eps   handle.Table[*EP]
	reqs  handle.Table[*Request]
	lanes map[uct.EP]*EP
	peers map[uint64]*peer
	msgID uint64

	peerEPs         int // EPs that peers made,
	peerEPsBySource map[netip.Prefix]int

	tags      match.Table[*Request, *message]
	inbound   map[pieceOf]*message // tagged messages of which fragments are missing
	sources   map[*ucxtcp.Conn]*source
	buffered  int  // bytes of all sources, including sources that have ended
	overLimit bool // buffered is above the limit
	rndv      map[*message]struct{}
	handlers  map[uint16]ActiveHandler
	windows   []*Mem
	onError   func(*EP, error)

	todo   []func() // functions to run outside of callbacks of the transport
	posted struct { // functions from other goroutines
		sync.Mutex
		calls  []func()
		closed bool
	}
	listeners map[*Listener]struct{}
	socks     map[*sock]struct{}
	stats     Stats
}

var tcpSum = ucxwire.TransportSum("tcp")

// Stats are the counters of a worker.
type Stats struct {
	Malformed uint64 // messages for which a connection was broken or an EP failed
	Late      uint64 // messages with the id of an EP or a request that does not exist, for example one that was closed
	Unhandled uint64 // active messages without a handler
	Refused   uint64 // endpoints of peers that were rejected
	Checks    uint64 // checks of endpoints that peers have sent
	Paused    uint64 // times that the worker stopped reading a connection because of unexpected messages
	Overflows uint64 // connections that were broken because of Config.MaxBufferedTotal
}

// NewWorker opens the transport on a device and returns a worker. Errors: ErrInvalidParam, also if the device does not
// exist, and those of sockets.
func NewWorker(cfg Config) (_ *Worker, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, lanes: map[uct.EP]*EP{}, peers: map[uint64]*peer{}, peerEPsBySource: map[netip.Prefix]int{}, inbound: map[pieceOf]*message{}, sources: map[*ucxtcp.Conn]*source{},
		rndv: map[*message]struct{}{}, handlers: map[uint16]ActiveHandler{}, listeners: map[*Listener]struct{}{}, socks: map[*sock]struct{}{},
	}
	w.uuid, w.msgID = randomUint64(), randomUint64()
	w.tags.Init()
	w.engine.Init(w, cfg.SpinPolls, false)
	var undo cleanup.Stack
	defer func() {
		if err != nil {
			err = ucs.Join(&ucs.OpError{TL: "ucx", Op: "new worker", Err: err}, undo.Run())
		}
	}()
	if w.md, err = ucxtcp.New(cfg.TCP).OpenMD(ucxtcp.Name); err != nil {
		return nil, err
	}
	undo.Add(w.md.Close)
	u, err := w.md.OpenIface(uct.IfaceParams{Transport: ucxtcp.Name, Device: cfg.Device, OnError: w.laneFailed})
	if err != nil {
		return nil, err
	}
	undo.Add(u.Close)
	if err = w.useIface(u); err != nil {
		return nil, err
	}
	w.engine.Start()
	return w, nil
}

func randomUint64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

func (w *Worker) useIface(u uct.Iface) error {
	w.tcp, w.attr = u.(*ucxtcp.Iface), u.Attr()
	w.zcopyMin = w.attr.AM.MaxBcopy
	w.tcp.OnLeave(w.connEnded)
	w.tcp.OnFin(w.peerFinished)
	w.engine.Add(&w.iface, u)
	for id, f := range w.arrivalHandlers() {
		h := uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
			a := arrival{conn: w.tcp.Source(), data: data}
			if !f(a) {
				w.stats.Malformed++
				a.conn.Drop(fmt.Errorf("%w: message %d", ucxwire.ErrMalformed, id))
			}
			return false
		})
		if err := u.SetAMHandler(id, h); err != nil {
			return err
		}
	}
	return nil
}

// arrivalHandlers returns the handlers of UCP's active messages. A handler returns false for a malformed message; then its
// connection is broken.
func (w *Worker) arrivalHandlers() map[uint8]func(arrival) bool {
	return map[uint8]func(arrival) bool{
		ucxwire.IDWireup:      w.handleWireup,
		ucxwire.IDEager:       w.handleEager,
		ucxwire.IDEagerFirst:  w.handleEagerFirst,
		ucxwire.IDEagerMiddle: w.handleEagerMiddle,
		ucxwire.IDSync:        w.handleSync,
		ucxwire.IDSyncFirst:   w.handleSyncFirst,
		ucxwire.IDSyncAck:     w.handleSyncAck,
		ucxwire.IDRTS:         w.handleRTS,
		ucxwire.IDATS:         w.handleATS,
		ucxwire.IDRTR:         w.handleRTR,
		ucxwire.IDRndvData:    w.handleRndvData,
		ucxwire.IDStream:      w.handleStream,
		ucxwire.IDPut:         w.handleTarget(ucxwire.IDPut),
		ucxwire.IDGetRequest:  w.handleTarget(ucxwire.IDGetRequest),
		ucxwire.IDGetReply:    w.handleGetReply,
		ucxwire.IDAtomic:      w.handleTarget(ucxwire.IDAtomic),
		ucxwire.IDAtomicReply: w.handleAtomicReply,
		ucxwire.IDCompletion:  w.handleCompletion,
		ucxwire.IDAM:          w.handleAM,
		ucxwire.IDAMReply:     w.handleAMReply,
		ucxwire.IDAMFirst:     w.handleAMFirst,
		ucxwire.IDAMFirstPSN:  w.handleAMFirst,
		ucxwire.IDAMMiddle:    w.handleAMMiddle,
		ucxwire.IDAMMiddlePSN: w.handleAMMiddle,
	}
}

// Address returns the address of the worker, which a program with UCX passes to ucp_ep_create.
func (w *Worker) Address() []byte {
	a := w.address()
	return ucxwire.AppendAddress(nil, &a, ucxwire.Layout{})
}

// address returns the address of the worker without endpoints. UCX aborts if the address in a wireup request has other
// attributes than the address with which the endpoint was created.
func (w *Worker) address() ucxwire.Address {
	a := w.addressWithoutDevices()
	a.Devices = []ucxwire.Device{{
		SysDev: ucxwire.NoSysDev, Addr: w.tcp.DeviceAddr(nil),
		Ifaces: []ucxwire.Iface{{Transport: tcpSum, Attr: ucxwire.TCPAttr, Addr: w.tcp.IfaceAddr(nil)}},
	}}
	if w.cfg.AddressVersion == 2 {
		a.Version, a.Release = 2, 0
		a.Devices[0].Ifaces[0].Attr.SegLen = w.attr.AM.MaxZcopy
	}
	return a
}

// Progress completes operations and delivers messages. It returns the number of events; 0 means idle. It does
// not block. Callbacks that it runs must not call it.
func (w *Worker) Progress() int { return w.engine.Progress() }

// Until makes progress until done returns true. It spins, yields and then sleeps. If ctx is done first, it returns the
// error of ctx. If the worker is closed first, it returns an error that wraps ErrClosed.
func (w *Worker) Until(ctx context.Context, done func() bool) error {
	if err := w.engine.Turn.Take(); err != nil {
		return err
	}
	err := w.engine.Until(ctx, done)
	w.engine.Push()
	w.engine.Turn.Release()
	return err
}

// Serve makes progress until ctx ends or the worker is closed, and returns the error of Until.
func (w *Worker) Serve(ctx context.Context) error {
	return w.Until(ctx, func() bool { return false })
}

// Stats returns the counters.
func (w *Worker) Stats() Stats { return w.stats }

// Signal wakes the goroutine that waits in a method of the worker. Any goroutine may call it.
func (w *Worker) Signal() { w.engine.Signal() }

// OnError sets a function that is called, from Progress, once for each EP that fails. Without it, only operations and
// EP.Err report failures.
func (w *Worker) OnError(f func(e *EP, err error)) { w.onError = f }

// Work implements engine.Owner.
func (w *Worker) Work() int {
	w.posted.Lock()
	calls := w.posted.calls
	w.posted.calls = nil
	w.posted.Unlock()
	n := len(calls) + len(w.todo)
	for _, f := range calls {
		f()
	}
	todo := w.todo
	w.todo = nil
	for _, f := range todo {
		f()
	}
	if len(w.todo) > 0 {
		w.engine.Raise()
	}
	return n
}

// call runs f in the goroutine that owns the worker. Any goroutine may call it. It returns false if the worker is closed.
func (w *Worker) call(f func()) bool {
	w.posted.Lock()
	closed := w.posted.closed
	if !closed {
		w.posted.calls = append(w.posted.calls, f)
	}
	w.posted.Unlock()
	if !closed {
		w.engine.Post()
	}
	return !closed
}

// laneFailed is called by the transport of a lane that failed.
func (w *Worker) laneFailed(lane uct.EP, err error) {
	if e := w.lanes[lane]; e != nil && !e.lane.Opened() {
		e.why = append(e.why, err)
		if e.tryNext() {
			return
		}
		err = errors.Join(e.why...)
	}
	w.todo = append(w.todo, func() {
		e := w.lanes[lane]
		if e == nil {
			return
		}
		if e.sock != nil && errors.Is(err, ucs.ErrConnReset) && !errors.Is(err, unix.ECONNRESET) {
			err = ucs.ErrPeerClosed // a graceful close ends the data connection too, perhaps before the socket of the connection manager
		}
		e.fail(statusOf(err), err)
	})
	w.engine.Raise()
}

// statusOf returns the status of an error of a transport.
func statusOf(err error) ucs.Status {
	for _, st := range [...]ucs.Status{ucs.StatusPeerClosed, ucs.StatusConnReset, ucs.StatusTimedOut, ucs.StatusRejected,
		ucs.StatusUnreachable, ucs.StatusRemoteAccess, ucs.StatusCanceled, ucs.StatusNoMemory, ucs.StatusInvalidParam, ucs.StatusRemoteInvalid} {
		if errors.Is(err, st.Err()) {
			return st
		}
	}
	if errors.Is(err, ucs.ErrEPFailed) {
		return ucs.StatusConnReset
	}
	return ucs.StatusInternal
}

// Close closes the worker with its listeners and EPs. Operations in progress complete with StatusCanceled: close EPs with
// CloseFlush first to avoid that. Close is idempotent. Any goroutine may call it while the owner is in a method that
// waits; that method then returns an error that wraps ErrClosed. Otherwise only the owner may call it. A callback must not
// call it.
func (w *Worker) Close() error {
	w.engine.BeginClose()
	defer w.engine.EndClose()
	if w.closed {
		return nil
	}
	w.closed = true
	w.posted.Lock()
	w.posted.closed = true
	w.posted.Unlock()
	w.Work() // runs functions of other goroutines that wait for their result
	for l := range w.listeners {
		_ = l.shut() // the listener is closed even if this fails
	}
	for s := range w.socks {
		s.close()
		s.wait()
	}
	for e := range w.eps.All() {
		_, _ = e.Close(CloseForce) // cannot fail
	}
	for r := range w.tags.Receives() {
		w.todo = append(w.todo, func() {
			if w.tags.Cancel(&r.Owner.recv) {
				r.Owner.end(ucs.StatusCanceled, nil)
			}
		})
	}
	for m := range w.tags.Messages() {
		m.Owner.drop()
	}
	for _, m := range w.inbound {
		if m.recv != nil {
			m.recv.end(ucs.StatusCanceled, nil)
		}
	}
	for _, f := range w.todo {
		f()
	}
	errs := w.engine.Stop()
	return ucs.Join(append(errs, w.engine.Close(), w.md.Close())...)
}
