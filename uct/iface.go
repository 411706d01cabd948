package uct

import (
	"net/netip"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// Iface is an open transport instance. Unless stated otherwise, only the goroutine that owns the iface may
// call its methods. Another goroutine may become the owner if the two goroutines synchronize.
// After set-up no method blocks, allocates or starts goroutines.
type Iface interface {
	Attr() *IfaceAttr // immutable after open; never nil; any goroutine
	// Ext returns the optional features of the iface; never nil. It may allocate: the caller should call it once.
	Ext() *IfaceExt
	// NewEP returns an endpoint. How it connects depends on the caps and on p. NewEP checks the
	// addresses in p, which may come from an untrusted peer: ErrInvalidAddr,
	// ErrUnreachable. There may be many EPs to one peer, and both sides may connect at
	// the same time.
	NewEP(p EPParams) (EP, error)
	// SetAMHandler sets the handler for id (0..MaxAMID, otherwise ErrInvalidParam);
	// nil removes it. Messages without a handler are dropped and counted.
	SetAMHandler(id uint8, h AMHandler) error
	// Progress completes sends, delivers arrivals and dispatches pending
	// requests. It returns the number of completions and arrivals; 0 means idle.
	// For the calls that its callbacks may make see the package documentation, "Calls
	// from callbacks".
	Progress() int
	// Flush is EP.Flush over all EPs of the iface.
	Flush(c *Completion) (pending bool, err error)
	// Fence is EP.Fence over all EPs of the iface.
	Fence() error
	// Close closes all EPs of the iface and the iface. Operations in flight
	// complete with StatusCanceled. When Close returns, every completion has fired, and
	// no peer accesses memory of the iface that the caller can see. Close does not change
	// the guarantees of Mem.Close for memory of the MD. With CapErrPeer, EPs of peers to this iface
	// fail with ErrPeerClosed, at the latest when they are used.
	Close() error
}

// IfaceExt are the optional features of an iface; a field is nil if the iface does not have the feature.
// The struct does not change, and its methods follow the rules of the Iface. A
// wrapper copies it and replaces fields.
type IfaceExt struct {
	Address IfaceAddresser // nil if peers cannot address the iface
	Wake    Waker          // not nil iff CapEventFD
	Pending EventPender    // nil: poll the iface
	Watch   Watcher        // nil: call Progress
	Armed   ArmChecker     // nil: operations that are posted after Arm may need Progress
	Push    Pusher         // nil if posted messages are sent without Progress
	Stats   Counted        // nil if the iface has no counters
	Explain Explainer      // nil if the iface does not depend on the system
	Measure Measurer       // nil if only declared costs are available
	Port    PortSharer     // nil: peers connect to the iface's own port, if it has one
	// Dials means that EPs to a peer iface use connections, which one side dials. Otherwise EPParams.Dial has no effect.
	Dials bool
	// Guarded means that Progress panics with TwoAtOnce if it is called while it runs, so that the caller
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
	// Config is the configuration struct of the transport, or nil for its
	// defaults from the environment. ErrInvalidParam if it is of another type.
	Config any
	// OnError is called once for each EP that fails, from Progress, before or
	// after the completions of operations in flight. Later operations of the EP return
	// ErrEPFailed. The caller must still close the EP; OnError may do so. nil means that
	// only completions report failures.
	//
	// err is one line with the name of the transport. Its reason matches one of:
	// ErrRemoteAccess (see Putter); ErrPeerClosed: the peer closed gracefully;
	// ucs.ErrConnReset: the peer died or is unreachable; ucs.ErrTimedOut: the same if the
	// transport can only detect missing replies; ErrUnreachable or ucs.ErrRejected: the EP was never
	// connected; any other: a fault of the device or of the protocol.
	// Completions have the status of the reason. A transport with CapErrPeer reports
	// a dead peer at the latest when the EP is used. Other EPs are not affected.
	OnError func(ep EP, err error)
	// Token is a secret that this side shares with its peers; empty means none. A transport over a network
	// that others can reach (tcp) rejects connections from a side that does not have the same token, before
	// it reads anything else. Other transports ignore it. It does not encrypt.
	Token string
	// IdleTimeout is the time without EPs of this side after which a transport with connections closes one that no EP
	// of the peer uses either. Other transports ignore it. 0 means that connections remain open.
	IdleTimeout time.Duration
	// Listener is the address at which the layer above listens, if the iface is opened for that listener: an
	// iface with IfaceExt.Port then needs no own port. Otherwise it is the zero AddrPort.
	Listener netip.AddrPort
}

// PortSharer is an iface whose peers may connect to a listening socket of the layer above. Such a
// connection begins with a preface, which identifies the iface (docs/wire.md, "Preface"). Any goroutine may call ID,
// AddrAt and AddrReached.
type PortSharer interface {
	// ID returns the id of the iface in a preface. It is not 0.
	ID() uint64
	// AddrAt returns the iface address for peers that can connect to a listener, which may have an
	// unspecified address; nil if the device does not have that address. With reached, the peer has
	// connected to the listener, possibly at another address (NAT).
	AddrAt(listener netip.AddrPort, reached bool) []byte
	// AddrReached returns the address of a peer's iface that this side must use. at is the address at which this side
	// reached the peer's listener: it replaces the address in an ifaceAddr from AddrAt with reached. AddrReached returns
	// other addresses unchanged.
	AddrReached(ifaceAddr []byte, at netip.AddrPort) []byte
	// Adopt passes a connection of the listener to the iface, after its preface was read. fd is a
	// nonblocking socket, which the iface closes; from is the address of the peer.
	Adopt(fd int, from netip.Addr)
}

// IfaceAddresser returns the addresses of an iface for peers.
type IfaceAddresser interface {
	// DeviceAddr appends the address of the device. Peers use it to check whether they can reach the device.
	DeviceAddr(b []byte) []byte
	// IfaceAddr appends the address of this iface on its device. It requires
	// CapConnectIface.
	IfaceAddr(b []byte) []byte
	// Reachable reports whether an EP can be connected to the peer. It validates
	// its arguments, which may come from an untrusted peer. why is the criterion
	// that failed. ifaceAddr may be nil.
	Reachable(deviceAddr, ifaceAddr []byte) (ok bool, why string)
}

// Waker lets a caller sleep until the iface has work. Present iff
// CapEventFD.
//
// The caller must call Arm first. If it returns ErrBusy, the caller must call Progress and start again.
// Otherwise the caller waits until EventFD is readable, then calls Progress.
type Waker interface {
	// EventFD returns a descriptor that becomes readable on an event after Arm. The
	// iface owns it: the caller must not read or close it.
	EventFD() int
	// Arm requests one event for each type in ev. ErrBusy means that such an
	// event has already happened.
	Arm(ev Events) error
}

// EventPender reports cheaply whether an armed event has happened, so that an iface without
// connected EPs need not be polled: the caller calls Arm, and Progress only after EventPending
// has returned true. It requires a Waker.
type EventPender interface {
	// EventPending reports, with one or two loads and without a system call, whether
	// an event requested by Arm has happened. The result is true until the next Progress and Arm.
	EventPending() bool
}

// ArmChecker reports whether a goroutine that sleeps can continue to sleep after other goroutines have posted operations on the
// same iface. It requires a Waker.
type ArmChecker interface {
	// StillArmed reports whether the latest Arm, of all types of events, also covers what was posted and progressed since then:
	// nothing needs Progress now, and each arrival and completion makes EventFD readable or has done so. The caller
	// must have called Arm and, if the iface is a Pusher, Push.
	StillArmed() bool
}

// Pusher is an iface that joins small messages, and sends the joined messages at the next Progress.
type Pusher interface {
	// Push sends joined messages as far as possible without blocking. The caller should call it before a time
	// without Progress. It runs no callbacks. Progress reports failures.
	Push()
}

// Explainer explains an iface or EP whose implementation depends on features of the system.
type Explainer interface {
	// Explain returns one line of text: the implementation in use, and why no better one is used. Only the
	// owner may call it; it may make system calls.
	Explain() string
}

// Measurer measures the costs of operations that depend on the machine, because CPUs
// of the host move the bytes.
type Measurer interface {
	// Measure returns the costs on this machine. Any goroutine may call it. The first call in a
	// process for a device may block for 1 ms and use two CPUs; later calls return the
	// same result. Choices that must be equal on both sides, such as lanes, use the declared
	// costs, which are the same in all processes.
	Measure() Measured
}

// Measured are the costs on this machine.
type Measured struct {
	// Costs are the costs of IfaceAttr as measured on this machine, for large operations.
	Costs Costs
	// RegReach is MDAttr.RegReach as measured on this machine.
	RegReach Cost
	// Assumed means that the costs could not be measured, and are defaults.
	Assumed bool
}

// Counted is an iface with counters.
type Counted interface {
	// AddStats adds the counters to a node; no_handler counts messages without a
	// handler. The owner of the iface writes them; any goroutine may read them, also after Close.
	AddStats(n *stats.Node)
}

// StatsUpdater is a Counted with counters that follow from the state of its connections, so that operations do not
// update them.
type StatsUpdater interface {
	Counted
	// UpdateStats updates these counters. The owner of the iface must call it before the counters are read. Close updates
	// them too.
	UpdateStats()
}

// Watcher is an iface with memory words that show whether it has work. If Watch returns nil, the caller must call
// Progress.
type Watcher interface {
	// Watch returns the same value until Close. While it is idle, Progress would find no
	// completion and no arrival. Only Progress handles other work, such as timers,
	// so the caller must call it periodically, also while the watch is idle.
	Watch() *ucs.Watch
}

// Events selects the events that wake a waiter.
type Events uint8

// Types of events.
const (
	EventSendComp Events = 1 << iota // a send completed
	EventRecv                        // a message arrived
)

var eventNames = [...]string{"send_comp", "recv"}

// String lists the events, separated by '|'.
func (e Events) String() string { return joinNames(uint64(e), eventNames[:]) }

// MaxAMID is the largest active-message id of a transport (5 bits, as in UCX).
const MaxAMID = 31

// AMHandler receives active messages.
type AMHandler interface {
	// HandleAM receives one message. If it returns false, data is valid until it returns. If it
	// returns true, the handler owns desc and data until it calls
	// desc.Release, and no later message changes data. If desc is nil, the handler must copy data and
	// return false. Buffers that handlers own reduce the
	// receive queue: when none is left, senders wait, and no message is lost.
	HandleAM(data []byte, desc Desc) (keep bool)
}

// AMHandlerFunc adapts a function to AMHandler.
type AMHandlerFunc func(data []byte, desc Desc) (keep bool)

// HandleAM calls f.
func (f AMHandlerFunc) HandleAM(data []byte, desc Desc) bool { return f(data, desc) }

// Desc is a receive buffer of the transport, which a handler may own temporarily.
type Desc interface {
	// Release returns the buffer to the transport. The owner of the iface must call it once. Owned buffers
	// reduce the receive queue, so it should be called soon.
	Release()
}
