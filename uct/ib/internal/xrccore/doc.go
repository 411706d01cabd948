// Package xrccore implements the reliable-connected transport with receive queues to which peers
// send by number. It adds InfiniBand's extended reliable connections (XRC) to a Base, which is
// package rccore over verbs or over mlx5 queues (package dv).
//
//	sender                                          target
//	EP        RC QP ------------------------------- RC QP     EP
//	           messages, RMA, atomics, control
//	conn      initiator --------------------------> target    in the domain of the EP
//	           one queue at a time: SendWR.SRQN          \--> XRC SRQ, one for each uct.Queue
//
// The devices copy a message to a queue from the memory of the sender to the memory of the receive.
// If no receive is posted, the device of the sender retries without limit (RNR). Until then it sends
// no later message of that connection; other connections and the RC QP continue.
//
// internal/archtest/rooms/xrccore.txt assigns each file to a room: queueSet and queueEP implement
// the queues, and node, path and initiator the shared nodes. Neither room uses the other; Iface and
// EP combine them.
//
// # Connections to nodes
//
// With Config.ShareDomain there are no RC QPs: the iface belongs to an XRC domain, called node,
// which it shares with the other ifaces of its memory domain (process), or with those of all
// processes of the user on the host (host). The messages of all EPs arrive in one XRC SRQ, and one
// initiator carries everything that the iface posts to the ifaces of one domain. So n ifaces on
// each of m nodes need n*m initiators and targets on each node; rc needs n*n*m QPs.
//
//	process a of node X                       node Y
//	EP 1 -- path 1 --.                                .--> SRQ of b1   EP 4
//	EP 2 -- path 2 ---+-- initiator ------> target --+--> SRQ of b2   EP 5
//	                      SendWR.SRQN        a's, in the domain Y
//
// The address of an EP contains all that the peer needs, so the EP needs no message before the
// first one: the domain, the number of the SRQ, and an initiator and a target created for the EP.
// If the iface has an initiator to the domain of the peer that is not waiting, the EP uses that one
// and closes its own. The completion of the first message shows the peer that another target is in
// use: it opens that target (verbs.XRCD.OpenQP) and closes the one that it had offered. The
// immediate of a message contains the number of the EP of the receiver (docs/wire.md), so puts with
// notification are not supported. A message that arrives before Connect of its EP is delivered
// after Connect.
//
// Processes of a host find their domain by a file (ib.DomainFile). The target of an initiator to
// the own domain is created by the iface of the initiator, so the death of another process does not
// affect it.
//
// Paths share the send queue: each reserves places in it, as it leases slots in the completion
// queue. All work requests are signaled, because an unsignaled one of an idle EP would occupy its
// place. A message for which the peer has no receive blocks all work requests after it. Credits
// prevent that while the processes run.
//
// # When a work request fails
//
// The device stops the initiator at the first failed work request. The EP that posted it fails,
// with the status of the work request. What happens to the other EPs depends on the failure; no work
// request is executed twice:
//
//   - The target rejected it (invalid key; or the SRQ does not exist because the iface is closed or
//     its process is dead): the device executed all work requests before it and none after it. The
//     initiator holds the later ones back, with those posted in the meantime, as copies. The
//     target is in ERR too. In the own domain, the iface connects it again. Otherwise the device
//     reports the failure to all EPs that opened the target. Each creates another target and offers
//     it over its own initiator. The initiator accepts the first offer that names the failed
//     target, even if it arrives before the completion, and connects again. It then posts the work
//     requests that it held back, without those of the failed EP.
//   - The peer did not acknowledge, or the error occurred on this side, or the device had stopped
//     the initiator before: it is unknown which work requests were executed. All EPs over the
//     initiator fail, with ErrTimedOut if the peer did not acknowledge, otherwise with ErrConnReset
//     or ErrPeerClosed. A new EP creates a new initiator. The peers get no disconnect message,
//     because nothing is sent over the old initiator. Their EPs accept operations until this
//     process ends.
//   - No offer arrived within the time for which the device would have retried (TIMEOUT,
//     RETRY_COUNT). All EPs over the initiator fail in the same way, with ErrTimedOut: their peers
//     may be alive.
//
// If the device reports that the device of a peer does not exist any more, EPs to it fail with
// ErrConnReset. The initiator continues, unless work requests to them were in flight. If a process
// of each of two domains dies at the same time, initiators of both may wait, and hold back the
// offers for each other: then all EPs between the two domains fail when the time for an offer is
// over, also those of living processes. A user with another transport can then use that one, as
// after any ErrTimedOut.
//
// A failed or closed EP cannot cancel its work requests in flight without those of other EPs: it
// leaves them to the device until the iface is closed.
//
// # Connections to queues
//
// An EP has QUEUE_CONNS connections, created at their first use. Two control messages over the EP,
// request and reply, connect initiator and target; sends posted before that are held back. If the
// queue of a connection does not exist, or its sends were recalled, both QPs are in ERR. The
// connection is then established again in the same way, with the same QPs and another first PSN.
// Before the request, the initiator is in ERR and all work requests are flushed, so no recalled send
// is received later. Queues are in a private domain of the EP, also with Config.ShareDomain: the
// device rejects messages of other peers, and a message that waits for a receive blocks no other
// traffic.
//
// # One completion queue
//
// The queues use the completion queue of the core, so its events also report their completions.
// QUEUE_CQ_LEN limits the number of posted receives and sends in flight together: a queue reserves
// its depth, a connection QUEUE_TX_LEN.
//
// After an error of the completion queue the device reports no completions. The package first makes
// the device release all work requests: it moves initiators to RESET and stops XRC SRQs, which waits
// for peers in the middle of a message. Then it completes all operations with ErrIO. For peers the
// queues do not exist any more, as after Stop.
package xrccore
