// Package uct is the transport contract of gucx: a thin interface over one
// device and one transport. It contains only the contract. Each transport is a
// package of its own, and package uct/ucttest checks that it meets the contract.
//
//	Component      a family of memory domains ("ib", "self", "sm", "tcp")
//	   |  OpenMD
//	   MD          one device: registers and allocates memory, packs keys
//	   |  OpenIface
//	   Iface       one transport opened on that device, driven by one goroutine
//	   |  NewEP
//	   EP          one connection to a peer iface
//
// The optional abilities of an object are fields of a struct:
// [Ops] of an EP, [IfaceExt] of an Iface, [MDExt] of an MD. A nil field means that the object
// lacks the ability. A wrapper embeds the object, copies the struct and replaces fields.
//
// # Operation variants
//
// Short copies the caller's bytes with the CPU while the call runs; the buffer
// is the caller's again on return. Bcopy copies into or out of a buffer of the
// transport; an active message packs into it through a [Packer]. Zcopy moves bytes from
// or to registered memory, which belongs to the transport until the [Completion] fires.
//
// # Results
//
// A data call never blocks. It returns (pending=false, nil) when the operation
// needs nothing more from the caller, (pending=true, nil) when the completion
// will fire later, [ErrNoResource] when queues or credits are exhausted (queue a
// [PendingReq] and wait for its dispatch), or another error when the operation
// was refused and had no effect. Short calls return only an error: nil means
// that the transport has accepted the operation and copied its input.
//
// # Calls from inside
//
// Completions, handlers of active messages, pending requests and OnError are called by
// Progress of the iface, completions also by Close of an EP or of the iface. One rule
// holds for all of them: they may post, flush and fence, queue and purge pending requests,
// and open, connect and close EPs, including the EP of the call. They must not
// call Progress and must not close the iface.
//
// A completion fires exactly once, possibly after its EP was closed. Until then the buffers of
// the operation belong to the transport, afterwards to the caller.
//
// # Goroutines
//
// One goroutine at a time owns an Iface with all its EPs; see [Iface]. An MD may
// be used by any goroutine.
package uct
