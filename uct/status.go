package uct

import "github.com/gucx/gucx/ucs"

// Status is the result of an operation; see [ucs.Status]. It is not an error: Err
// returns the error.
type Status = ucs.Status

// Flow-control results. They are never wrapped, so that the data path can compare them with ==.
var (
	// ErrNoResource means that a queue is full or no credit is left; the operation had
	// no effect. The caller can queue a [PendingReq], which is called when the EP may have resources.
	ErrNoResource = ucs.ErrNoResource
	// ErrBusy means that the caller must do something else first: [Waker.Arm] returns it when
	// events have happened already (call Progress), AddPending when the EP has resources (post
	// again).
	ErrBusy = ucs.ErrBusy
)

// Errors. The caller must compare them with errors.Is, because [ucs.OpError] may wrap them.
var (
	ErrUnsupported  = ucs.ErrUnsupported  // the transport lacks this variant; see IfaceAttr.Caps
	ErrTooLong      = ucs.ErrTooLong      // length above the limit of this variant in IfaceAttr
	ErrInvalidParam = ucs.ErrInvalidParam // an argument outside its documented range
	ErrInvalidAddr  = ucs.ErrInvalidAddr  // bytes that are not an address of this transport
	ErrUnreachable  = ucs.ErrUnreachable  // a peer that this iface cannot reach
	ErrInvalidRKey  = ucs.ErrInvalidRKey  // bytes that are not a remote key of this MD
	ErrEPFailed     = ucs.ErrEPFailed     // the EP has failed; the error also wraps the reason
	ErrRemoteAccess = ucs.ErrRemoteAccess // a key, range or right that the target does not grant
	ErrClosed       = ucs.ErrClosed       // the object was closed
	ErrPeerClosed   = ucs.ErrPeerClosed   // the peer closed gracefully; ucs.ErrConnReset: it died
	ErrNoMemory     = ucs.ErrNoMemory     // memory, descriptors or device objects are exhausted
)
