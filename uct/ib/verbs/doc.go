// Package verbs has the objects and semantics of libibverbs, in Go: devices,
// contexts, protection domains (PD), memory regions (MR), completion queues (CQ)
// and channels, queue pairs (QP) of the services RC, UD and XRC, shared receive queues
// (SRQ), XRC domains (XRCD), address handles (AH) and thread domains (TD).
//
// What is made from what. A parent is closed after its children, otherwise its Close returns
// ErrBusy:
//
//	Device -> Context -> CompChannel -> CQ --+
//	                  -> TD -----------------+-> QP
//	                  -> PD -> MR, AH, SRQ --+
//	                  -> XRCD -> target QP
//	                          -> XRC SRQ, made from its PD and CQ too
//
// A queue pair is made in RESET and taken to RTS by three Modify calls, each with
// the attributes that its step needs. Work requests are posted as lists; those that
// are signaled, and all that fail, complete in the CQ, in order. A failed one
// moves its QP to ERR, which flushes the rest.
//
// # Memory
//
// The device reads and writes the memory that work requests name until they
// complete. It must be registered, and stay so. [Context.AllocBuffer] gives memory
// that peers reach in the cheapest way; any other slice of the heap can be
// registered too, and then stays reachable and unmoved until MR.Close.
//
// # Data path
//
// PostSend, PostRecv and Poll each cost one state check and one call of the
// provider. They do not block or allocate. Flow control is ErrNoResource, returned
// bare: compare with ==. Other errors are wrapped in *ucs.OpError: use errors.Is.
//
// # Providers
//
// [Provider] is the one seam between these objects and what implements them:
// package internal/mlx5/provider drives mlx5 queues, of the software HCA (package
// softhca) or of hardware.
package verbs
