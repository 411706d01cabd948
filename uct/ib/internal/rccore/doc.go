// Package rccore implements what the reliable-connected transports share. A transport adds a
// Driver: how it posts work requests and how it polls completions.
//
//	Iface   one CQ for both directions, one SRQ, one thread domain
//	  EP    one Link, mostly an RC QP; connected by CapConnectEP
//
// A Link may be a share of a QP to which several EPs post (transport xrc). Each of these EPs
// numbers its own work requests, and the completion queue reports the EP of each completion.
//
// # Sending
//
// An EP numbers its work requests: PI is the number of posted ones, CI the number of those known to
// be complete. The ID of a work request is its number, so one signaled completion retires all work
// requests up to it. A work request is signaled when no work request of its EP is in flight, when
// the last Config.Moderation ones were unsignaled, and when few bounce buffers are free. A short
// operation needs only these numbers. Other operations have an op, queued on the EP in order, which
// holds the completion, and the bounce buffer or the result of a short read or atomic.
//
// The caller of an operation with a completion waits for it, and may post nothing else. So such an
// operation is signaled if no signaled work request is in flight. If one is in flight, the
// operation is not signaled; when that one completes and no signaled one was posted after it,
// Retire posts a signaled RDMA write of 0 bytes. A zero-copy message is always signaled: the sender
// may compute before it polls again, and Retire would post the write only then.
//
// Flush completes when CI reaches the value of PI at the call. If the last work request was not
// signaled, Flush also posts a signaled RDMA write of 0 bytes.
//
// The completions of all EPs must fit into the CQ, also when a QP in ERR flushes each work request.
// So an EP reserves CQ slots of the iface. If none is free, the iface reclaims reserved slots that
// EPs do not use.
//
// # Receiving
//
// All EPs share the receive queue. The header of an active message is the 32-bit immediate (package
// rcwire, docs/wire.md), so payloads are aligned. A sender has one credit for each message
// that its peer accepts. The peer returns credits in the immediates of its messages, or, when half
// of the window is due, in a separate message. The sum of the windows of many EPs may exceed the
// receive queue: then the device replies with RNR NAKs, and the senders retry without limit.
//
// A put with notification is an RDMA write with immediate. It consumes a receive, without writing to
// the buffer, and a credit.
//
// # Failure
//
// The first failed completion of a QP fails its EP. The failed operation and flushes complete with
// the status of the cause. Operations after it complete with that status if the cause was the
// connection (reset, timeout, no receive buffer) or the peer, and with StatusCanceled otherwise. An
// invalid remote key, address range or access fails the EP of the initiator with such a completion;
// the EP of the target fails with ErrIO, by an asynchronous event.
//
// Asynchronous events and completions arrive in no order. Work requests that the device has flushed
// without a failed one before them complete when the event has arrived, or after one second with
// ErrConnReset.
//
// If the device reports that a peer died, the EP fails with ErrConnReset. If only acknowledgements
// are missing, it fails with ErrTimedOut: the path of this device may be broken. A peer that closes
// its EP first sends a control message; the EP then fails with ErrPeerClosed. Other EPs of the
// iface are not affected.
//
// A sender that has used all credits and whose messages are all acknowledged has no work request in
// flight that could time out. If it tries to send for Config.Timeout, it posts an RDMA write of 0
// bytes, which fails if the QP of the peer does not exist any more (noCredit).
package rccore
