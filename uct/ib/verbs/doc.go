// Package verbs has the objects and semantics of libibverbs, in Go: devices,
// contexts, protection domains (PD), memory regions (MR), completion queues (CQ)
// and channels, queue pairs (QP) of the services RC, UD and XRC, shared receive queues
// (SRQ), XRC domains (XRCD), address handles (AH) and thread domains (TD).
//
// Objects are children of other objects. Close of a parent returns ErrBusy while a child is
// open:
//
//	Device -> Context -> CompChannel -> CQ --+
//	                  -> TD -----------------+-> QP
//	                  -> PD -> MR, AH, SRQ --+
//	                  -> XRCD -> target QP
//	                          -> XRC SRQ, made from its PD and CQ too
//
// A queue pair is made in state RESET. Three calls of Modify move it to RTS, each with
// the attributes of its transition. Work requests are posted as lists. Signaled work requests, and all that
// fail, complete in the CQ, in order. A work request that fails
// moves its QP to ERR, which flushes the rest.
//
// # Memory
//
// The device reads and writes the memory of work requests until they
// complete. Until then the memory must be registered. Peers access memory of [Context.AllocBuffer]
// at the lowest cost. Any other slice of the heap can be
// registered too: the MR refers to it and pins it until MR.Close.
//
// # Data path
//
// PostSend, PostRecv and Poll each cost one state check and one call of the
// provider. They do not block or allocate. If a queue is full, the error is ErrNoResource, which is never
// wrapped: compare with ==. Other errors are wrapped in *ucs.OpError: use errors.Is.
//
// # Providers
//
// [Provider] is the interface of the implementations:
// package internal/mlx5/provider drives mlx5 queues, of the software HCA (package
// softhca) or of adapters (package connectx); package rxe uses the kernel's software RoCE device.
package verbs
