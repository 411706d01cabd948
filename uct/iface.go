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
	// OnError is called once for each EP that fails, from Progress, before or
	// after the completions of operations in flight. Later operations of the EP return
	// ErrEPFailed. The EP must still be closed, which OnError may do. nil means that
	// only completions report failures.
	//
	// err is one line that names the transport, and its reason matches one of:
	// ErrRemoteAccess (see Putter); ErrPeerClosed, the peer closed in order;
	// ucs.ErrConnReset, the peer died or is unreachable; ucs.ErrTimedOut, the same where the
	// transport only sees missing replies; ErrUnreachable or ucs.ErrRejected, the EP was never
	// connected; any other: a fault of the device or of the protocol.
	// Completions have the status of the reason. A transport with CapErrPeer reports
	// a dead peer at the latest when the EP is used. Other EPs are not affected.
	OnError func(ep EP, err error)
	// Token is a secret that this side shares with its peers; empty means none. A transport over a network
	// that others can reach (tcp) rejects connections from a side that does not have the same token, before
	// it reads anything else. Other transports ignore it. It encrypts nothing.
	Token string
	// Listener is the address at which the layer above listens, and the reason why the iface is opened: an
	// iface with IfaceExt.Port then needs no port of its own. The zero AddrPort if it does not listen.
	Listener netip.AddrPort
}

// PortSharer is an iface whose peers may connect to a listening socket of the layer above. Such a
// connection begins with a preface, which names the iface (docs/wire.md, "Preface"). ID, AddrAt and
// AddrReached may be called by any goroutine.
type PortSharer interface {
	// ID names the iface in a preface. Not 0.
	ID() uint64
	// AddrAt returns the iface address for peers that can connect to a listener, which may have an
	// unspecified address; nil if the device does not have that address. With reached, the peer has
	// connected to the listener, possibly at another address (NAT).
	AddrAt(listener netip.AddrPort, reached bool) []byte
	// AddrReached returns the address of a peer's iface as this side must use it. If the peer
	// made it by AddrAt with reached, the result has the address at, at which this side reached the
	// peer's listener. Other addresses are returned unchanged.
	AddrReached(ifaceAddr []byte, at netip.AddrPort) []byte
	// Adopt passes a connection of the listener to the iface, after its preface was read. fd is a
	// nonblocking socket, which the iface closes; from is the address of its other end.
	Adopt(fd int, from netip.Addr)
}

// IfaceAddresser gives the addresses of an iface that peers can address.
type IfaceAddresser interface {
	// DeviceAddr appends the address of the device, by which peers decide whether they can reach it.
	DeviceAddr(b []byte) []byte
	// IfaceAddr appends the address of this iface on its device. Only with
	// CapConnectIface.
	IfaceAddr(b []byte) []byte
	// Reachable reports whether an EP can be connected to the peer. It validates
	// its arguments, which may come from an untrusted peer; why names the criterion
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
	// Arm requests one event for each type in ev. ErrBusy means that such an
	// event has already happened.
	Arm(ev Events) error
}

// EventPender reports cheaply whether an armed event has happened, so that an iface without
// connected EPs need not be polled: Arm it, and call Progress again when EventPending
// is true. Only with a Waker.
type EventPender interface {
	// EventPending reports, by a load or two and without a system call, whether
	// an event requested by Arm has happened. It stays true until the next Progress and Arm.
	EventPending() bool
}

// Pusher is an iface that joins small messages, and sends what it has joined at the next Progress.
type Pusher interface {
	// Push sends joined messages as far as that is possible without blocking. Call it before a time
	// without Progress. It runs no callbacks. Progress reports failures.
	Push()
}

// Explainer explains an iface or EP that works differently depending on what the system
// permits.
type Explainer interface {
	// Explain returns one line for people: how it works, and why not better. Only the
	// owner may call it; it may make system calls.
	Explain() string
}

// Measurer measures the costs of operations that depend on the machine, because CPUs
// of the host move the bytes.
type Measurer interface {
	// Measure returns the costs on this machine. Any goroutine may call it. The first call in a
	// process for a device may block for a millisecond with two CPUs busy; later calls return the
	// same result. Choices that both sides must make alike, such as lanes, use the declared
	// costs, which are the same in all processes.
	Measure() Measured
}

// Measured are costs on a machine.
type Measured struct {
	// Costs are the costs of IfaceAttr as measured on this machine, for large operations.
	Costs Costs
	// RegReach is that of MDAttr.
	RegReach Cost
	// Assumed says that they could not be measured.
	Assumed bool
}

// Counted is an iface with counters.
type Counted interface {
	// AddStats adds the counters to a node; no_handler counts messages without a
	// handler. The owner of the iface writes them; any goroutine may read them, also after Close.
	AddStats(n *stats.Node)
}

// Watcher shows, in memory, whether an iface has something to do. A nil Watch: call
// Progress.
type Watcher interface {
	// Watch returns the same value until Close. While it is idle, Progress would find no
	// completion and no arrival. Other work, such as a timer, is only found by
	// Progress: call it now and then, also while the watch is idle.
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
	// HandleAM receives one message. If it returns false, data is valid until it returns. If it
	// returns true, desc and data belong to the handler until it calls
	// desc.Release, and no later message changes data. If desc is nil, the transport has no buffer
	// to lend: the handler must copy data and return false. Buffers that handlers own are missing
	// in the receive queue: when none is left, senders wait, and no message is lost.
	HandleAM(data []byte, desc Desc) (keep bool)
}

// AMHandlerFunc adapts a function to AMHandler.
type AMHandlerFunc func(data []byte, desc Desc) (keep bool)

// HandleAM calls f.
func (f AMHandlerFunc) HandleAM(data []byte, desc Desc) bool { return f(data, desc) }

// Desc is a receive buffer of the transport that a handler may own for a time.
type Desc interface {
	// Release gives the buffer back. By the owner of the iface, once. Buffers
	// held count against the receive queue: do not hold them for long.
	Release()
}
