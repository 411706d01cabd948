package uct

import "github.com/gucx/gucx/ucs"

// Status is how an operation ended; see [ucs.Status]. It is not an error: use
// Err to get one.
type Status = ucs.Status

// Flow-control results. They are never wrapped, so that the data path can compare them with ==.
var (
	// ErrNoResource means that a queue is full or credit is used up; the operation had
	// no effect. Queue a [PendingReq], which is called when it is time to try again.
	ErrNoResource = ucs.ErrNoResource
	// ErrBusy says that there is work to do first: [Waker.Arm] returns it when
	// events are already waiting, AddPending when the EP has resources (post
	// again instead of queueing).
	ErrBusy = ucs.ErrBusy
)

// Refusals. Match them with errors.Is; they may be wrapped by [ucs.OpError].
var (
	ErrUnsupported  = ucs.ErrUnsupported  // the transport lacks this variant; see IfaceAttr.Caps
	ErrTooLong      = ucs.ErrTooLong      // length over the attribute that limits this variant
	ErrInvalidParam = ucs.ErrInvalidParam // an argument outside its documented range
	ErrInvalidAddr  = ucs.ErrInvalidAddr  // bytes that are not an address of this transport
	ErrUnreachable  = ucs.ErrUnreachable  // a peer that this iface cannot reach
	ErrInvalidRKey  = ucs.ErrInvalidRKey  // bytes that are not a remote key of this MD
	ErrEPFailed     = ucs.ErrEPFailed     // the EP has failed; its reason is wrapped beside it
	ErrRemoteAccess = ucs.ErrRemoteAccess // a key, range or right that the target does not grant
	ErrClosed       = ucs.ErrClosed       // the object was closed
	ErrPeerClosed   = ucs.ErrPeerClosed   // the peer left in order; ucs.ErrConnReset: it died
	ErrNoMemory     = ucs.ErrNoMemory     // memory, descriptors or device objects are exhausted
)
