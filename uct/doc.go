// Package uct is the transport contract of gucx: a thin interface over one
// device and one transport. It contains only the contract. Each transport is a
// separate package; package uct/ucttest checks that a transport conforms to the contract.
//
//	Component      a family of memory domains ("ib", "self", "sm", "tcp")
//	   |  OpenMD
//	   MD          one device: registers and allocates memory, packs keys
//	   |  OpenIface
//	   Iface       one transport opened on that device, driven by one goroutine
//	   |  NewEP
//	   EP          one connection to a peer iface
//
// The optional features of an object are fields of a struct:
// [Ops] of an EP, [IfaceExt] of an Iface, [MDExt] of an MD. A nil field means that the object
// does not have the feature. A wrapper embeds the object, copies the struct and replaces fields.
//
// # Operation variants
//
// Short: the CPU copies the caller's bytes during the call; the caller may reuse the
// buffer on return. Bcopy: the bytes are copied to or from a buffer of the
// transport; an active message is packed into it by a [Packer]. Zcopy: bytes are transferred from
// or to registered memory, which the caller must not use until the [Completion] fires.
//
// # Results
//
// A data call never blocks. It returns (pending=false, nil) if the operation
// is complete for the caller, (pending=true, nil) if the completion
// will fire later, [ErrNoResource] if queues or credits are exhausted (queue a
// [PendingReq] and wait for its dispatch), or another error if the operation
// was rejected and had no effect. Short calls return only an error: nil means
// that the transport has accepted the operation and copied its input.
//
// # Calls from callbacks
//
// Completions, handlers of active messages, pending requests and OnError are called by
// Progress of the iface, completions also by Close of an EP or of the iface. One rule
// applies to all of them: they may post, flush and fence, queue and purge pending requests,
// and open, connect and close EPs, including the EP of the call. They must not
// call Progress and must not close the iface.
//
// A completion fires exactly once, possibly after its EP was closed. Until then the transport uses the buffers of
// the operation, and the caller must not.
//
// # Goroutines
//
// One goroutine at a time owns an Iface with all its EPs; see [Iface]. An MD may
// be used by any goroutine.
package uct
