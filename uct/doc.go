// Package uct is the transport contract of gucx: a thin interface over one
// device and one transport. It holds contracts only; each transport lives in a
// package of its own and package uct/ucttest tells whether it keeps them.
//
//	Component      a family of memory domains ("ib", "self", "sm", "tcp")
//	   |  OpenMD
//	   MD          one device: registers and allocates memory, packs keys
//	   |  OpenIface
//	   Iface       one transport opened on that device, driven by one goroutine
//	   |  NewEP
//	   EP          one connection to a peer iface
//
// # Operation variants
//
// Short copies the caller's bytes with the CPU while the call runs; the buffer
// is the caller's again on return. Bcopy packs into a buffer of the transport
// through a [Packer]. Zcopy moves bytes from or to registered memory, which
// belongs to the transport until the [Completion] fires.
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
// # Goroutines
//
// One goroutine at a time owns an Iface with all its EPs; see [Iface]. An MD may
// be used by any goroutine.
package uct
