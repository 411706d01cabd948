package uct

import (
	"net/netip"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// Iface is an open transport instance. Except where said, methods must be called
// by the goroutine that owns the iface, one at a time; the owner may change if
// the hand-over synchronises. Nothing blocks, allocates or starts goroutines after
// set-up.
type Iface interface {
	Attr() *IfaceAttr // immutable after open; never nil; any goroutine
	// Ext is what the iface can do besides; never nil. It may allocate: read it once.
	Ext() *IfaceExt
	// NewEP makes an endpoint. How it connects depends on the caps and on p, whose
	// addresses may come from an untrusted peer and are checked: ErrInvalidAddr,
	// ErrUnreachable. There may be many EPs to one peer, and both sides may connect at
	// the same time.
	NewEP(p EPParams) (EP, error)
	// SetAMHandler installs the handler for id (0..MaxAMID, else ErrInvalidParam);
	// nil removes it. Messages without a handler are dropped and counted.
	SetAMHandler(id uint8, h AMHandler) error
	// Progress completes sends, delivers arrivals and dispatches pending
	// requests. It returns completions plus arrivals handled; 0 means idle.
	// What handlers and completions may do that run inside it: see the package, "Calls
	// from inside".
	Progress() int
	// Flush is EP.Flush over all EPs of the iface.
	Flush(c *Completion) (pending bool, err error)
	// Fence is EP.Fence over all EPs of the iface.
	Fence() error
	// Close releases the iface. Every EP is closed first; operations in flight
	// complete with StatusCanceled. When it returns, every completion has fired, and
	// no peer touches memory of the iface that the caller can see; what Mem.Close
	// promises of memory of the MD holds as before. With CapErrPeer, EPs that lead here
	// fail with ErrPeerClosed, at the latest when they are used.
	Close() error
}

// IfaceExt are the abilities of an iface that are optional, nil where it lacks one.
// The struct does not change, and its methods follow the rules of the Iface. A
// wrapper copies it and replaces what it changes.
type IfaceExt struct {
	Address IfaceAddresser // nil: peers cannot address it
	Wake    Waker          // iff CapEventFD
	Pending EventPender    // nil: poll the iface
	Watch   Watcher        // nil: call Progress
	Push    Pusher         // nil: what was posted needs no Progress to leave
	Stats   Counted        // nil: it has no counters
	Explain Explainer      // nil: nothing depends on the system
	Measure Measurer       // nil: what is declared is all there is
	Port    PortSharer     // nil: peers connect to the iface's own port, if it has one
	// Guarded: Progress panics with TwoAtOnce when it is called while it runs, so that the caller
	// need not check.
	Guarded bool
}

// TwoAtOnce is the text of the panic of an iface, and of a ucp.Worker, that is used by two
// goroutines at once.
const TwoAtOnce = "uct: concurrent use of an iface or ucp.Worker by two goroutines, or by a callback of it; goroutines share a ucp.Worker by Worker.Share"

// IfaceParams opens an iface.
type IfaceParams struct {
	Transport string
	Device    string
	// Config is the transport's own configuration struct, or nil for its
	// defaults from the environment. ErrInvalidParam if it is of another type.
	Config any
	// OnError is told of an EP that failed, once for each EP, from Progress, before or
	// after the completions of what was in flight. The EP then refuses work with
	// ErrEPFailed and must still be closed, which OnError may do. nil means that
	// failures show in completions only.
	//
	// err is one line that names the transport, and its reason matches one of:
	// ErrRemoteAccess (see Putter); ErrPeerClosed, the peer left in order;
	// ucs.ErrConnReset, it died or vanished; ucs.ErrTimedOut, the same where silence is
	// all there is to notice; ErrUnreachable or ucs.ErrRejected, it was never connected;
	// any other: a fault of the device or of the protocol.
	// Completions have the status of the reason. A transport with CapErrPeer reports
	// the end of a peer at the latest when the EP is used; other EPs work on.
	OnError func(ep EP, err error)
	// Token is a secret that this side and its peers have; empty means none. A transport over a network
	// that others can reach (tcp) refuses connections of a side that has not the same, before anything
	// else is read. Others ignore it. It encrypts nothing.
	Token string
	// Listener is where the layer above listens, if the iface is opened because of that: an iface with
	// IfaceExt.Port may do without a port of its own. The zero AddrPort if it does not listen.
	Listener netip.AddrPort
}

// PortSharer is an iface whose peers may connect to a listening socket of the layer above. Such a
// connection begins with a preface, which names the iface (docs/wire.md, "Preface"). ID, AddrAt and
// AddrReached may be called by any goroutine.
type PortSharer interface {
	// ID names the iface in a preface. Not 0.
	ID() uint64
	// AddrAt returns the iface address for peers that may connect to a listener, which may be at an
	// unspecified address; nil if the device has not that address. With reached, the peer has
	// connected to the listener, maybe at another address (NAT).
	AddrAt(listener netip.AddrPort, reached bool) []byte
	// AddrReached returns the address of a peer's iface as this side uses it: if the peer has
	// made it by AddrAt with reached, with the address at which this side has reached its listener.
	// Others it returns as they are.
	AddrReached(ifaceAddr []byte, at netip.AddrPort) []byte
	// Adopt takes over a connection to a listener behind its preface: a nonblocking socket, which the
	// iface closes, and the address of its other end.
	Adopt(fd int, from netip.Addr)
}

// IfaceAddresser gives the addresses of an iface that peers can address.
type IfaceAddresser interface {
	// DeviceAddr appends the address of the device: what decides reachability.
	DeviceAddr(b []byte) []byte
	// IfaceAddr appends the address of this iface on its device. Only with
	// CapConnectIface.
	IfaceAddr(b []byte) []byte
	// Reachable reports whether an EP can be connected to the peer. It checks
	// its arguments, which may come from an untrusted peer; why says the criterion
	// that failed. ifaceAddr may be nil.
	Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string)
}

// Waker lets a caller sleep until there is work. Present iff
// CapEventFD.
//
// The order is: Arm; if it returns ErrBusy call Progress and start again;
// otherwise wait for EventFD to become readable, then call Progress.
type Waker interface {
	// EventFD is a descriptor that becomes readable on an event after Arm. It
	// belongs to the iface: do not read or close it.
	EventFD() int
	// Arm asks for one event for each kind in ev. ErrBusy means that such an
	// event is already there.
	Arm(ev Events) error
}

// EventPender tells cheaply whether an armed event has come, so that an iface without
// connected EPs need not be polled: Arm it, and call Progress again when EventPending
// is true. Only with a Waker.
type EventPender interface {
	// EventPending reports, by a load or two and without a system call, whether
	// an event asked for by Arm has come. It stays true until Progress and Arm
	// have taken the event.
	EventPending() bool
}

// Pusher is an iface that joins small messages, and sends what it has joined at the next Progress.
type Pusher interface {
	// Push sends what was posted, as far as that is possible at once: a caller that will not call
	// Progress for a while calls it. It runs no callbacks. Failures show in Progress.
	Push()
}

// Explainer explains an iface or EP whose way of working depends on what the system
// permits.
type Explainer interface {
	// Explain says for people how it works and why not better, in one line. By the
	// owner; it may make system calls.
	Explain() string
}

// Measurer measures the costs of operations where they depend on the machine, as the processors
// of the host move the bytes.
type Measurer interface {
	// Measure returns the costs on this machine. It is for any goroutine. The first call in a
	// process for a device may block for a millisecond with two processors busy; from then on the
	// result is the same. What two sides must choose alike, such as lanes, goes by the declared
	// costs, which are the same in all processes.
	Measure() Measured
}

// Measured are costs on a machine.
type Measured struct {
	// Costs are those of IfaceAttr, of the same variants, as they are here for long operations.
	Costs Costs
	// RegReach is that of MDAttr.
	RegReach Cost
	// Assumed says that they could not be measured.
	Assumed bool
}

// Counted counts what happens to an iface.
type Counted interface {
	// AddStats adds the counters to a node; no_handler is that of messages without a
	// handler. The owner of the iface writes them; any
	// goroutine may read them, also after Close.
	AddStats(n *stats.Node)
}

// Watcher shows, in memory, whether an iface has something to do. A nil Watch: call
// Progress.
type Watcher interface {
	// Watch stays the same until Close. While it is idle, Progress would find no
	// completion and no arrival. Work that waits for something else shows up at
	// the next call of Progress only: call it now and then, whatever the watch
	// says.
	Watch() *ucs.Watch
}

// Events selects what wakes a waiter.
type Events uint8

// Event kinds.
const (
	EventSendComp Events = 1 << iota // a send completed
	EventRecv                        // a message arrived
)

var eventNames = [...]string{"send_comp", "recv"}

// String lists the kinds, separated by '|'.
func (e Events) String() string { return joinNames(uint64(e), eventNames[:]) }

// MaxAMID is the largest active-message id of a transport (5 bits, as in UCX).
const MaxAMID = 31

// AMHandler receives active messages.
type AMHandler interface {
	// HandleAM gets one message. data is lent until HandleAM returns, unless it
	// returns true: then desc and data are the handler's until it calls
	// desc.Release. desc is nil when the transport cannot lend: copy, and return
	// false. What is kept stays as it is until Release, whatever arrives meanwhile.
	// Buffers that are kept count against the receive queue: senders wait when all are,
	// and nothing is lost.
	HandleAM(data []byte, desc Desc) (keep bool)
}

// AMHandlerFunc adapts a function to AMHandler.
type AMHandlerFunc func(data []byte, desc Desc) (keep bool)

// HandleAM calls f.
func (f AMHandlerFunc) HandleAM(data []byte, desc Desc) bool { return f(data, desc) }

// Desc is a receive buffer of the transport that a handler may keep.
type Desc interface {
	// Release gives the buffer back. By the owner of the iface, once. Buffers
	// held count against the receive queue: do not hold them for long.
	Release()
}
