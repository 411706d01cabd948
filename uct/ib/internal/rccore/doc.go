// Package rccore is what the reliable-connected transports share: everything but how
// a work request reaches its queue and how completions are read, which a Driver adds.
//
//	Iface   one CQ for both directions, one SRQ, one thread domain
//	  EP    one Link, mostly an RC QP; connected by CapConnectEP
//
// A Link may be a share in a QP that several EPs post to (transport xrc). EPs still number their
// own work requests: the completion queue of such links says of each completion which EP's it is.
//
// # Sending
//
// Every post takes one work request. An EP numbers its work requests: PI is how
// many were posted, CI how many are known to be complete, and the number travels
// in the work request's ID, so that one signaled completion retires all before
// it. A work request is signaled when nothing of its EP is in flight, when
// Config.Moderation of them were not, and when bounce buffers run low. Short
// operations leave nothing behind but these numbers; others leave an op, queued
// on the EP in order, that holds the completion, and the bounce buffer or a short
// result.
//
// Somebody waits for such an operation, who may post nothing else. It is signaled also
// when no completion is on its way. Behind one that is, it is not; when that one has
// arrived and nothing signaled has followed, Retire posts a signaled RDMA write of no
// bytes. A message without a copy is signaled always: its sender may compute before it
// polls again, and would then find out only that it has to ask.
//
// Flush completes when CI reaches the PI of the call. If the last work request
// was not signaled it posts such a write too.
//
// The completions of all EPs must fit into the CQ, also when a failing QP flushes
// each work request. An EP therefore leases CQ slots from the iface as it goes; an
// iface that has none left takes back those that idle EPs hold.
//
// # Receiving
//
// Receives are shared by all EPs. The header of an active message is the 32-bit
// immediate (package rcwire, docs/wire.md), so payloads keep their alignment. A
// sender has credits for the messages that its peer will take in; they come back
// in the immediate of messages that go the other way, or, when half of them are
// due, in a message of their own. The windows of many EPs may add up to more than
// the receive queue: then receiver-not-ready retries, which never give up, hold
// the senders.
//
// A put with notification is a write with immediate, whose immediate is the word. It takes a
// receive, of which nothing is written, and a credit.
//
// # Failure
//
// The first failed completion of a QP fails its EP. The operation gets the status
// of the cause, and so does a flush. Other operations behind it get the cause if that
// was the connection (reset, no answer, no receive buffer) or what the peer has done,
// and StatusCanceled otherwise. A bad remote key, range or right is such a failure on
// the initiator's EP; on the target's EP it is ErrIO, by an asynchronous event.
//
// Such an event and completions come by different ways. What the device has flushed, with
// no failed work request before it, ends when the event is there, or after a second with
// ErrConnReset.
//
// A peer that dies is told by
// the device: that is ErrConnReset. If all there is to see is that nobody answers, that is
// ErrTimedOut: it may be the way over this device. A peer that closes its EP
// sends a control message first: that is ErrPeerClosed. Other EPs of the iface go on.
//
// A sender that has used up its credit and has all its messages acknowledged has nothing in flight that
// could time out. If it tries to send for Config.Timeout, a write of no bytes finds out whether the
// peer's QP is still there (noCredit).
package rccore
