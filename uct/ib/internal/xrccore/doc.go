// Package xrccore is the reliable-connected transport with receive queues that peers send to by
// number: a Base, which is package rccore over verbs, or over mlx5 queues (package dv), and beside
// it the queues of InfiniBand's extended reliable connections (XRC).
//
//	sender                                          target
//	EP        RC QP ------------------------------- RC QP     EP
//	           messages, RMA, atomics, control
//	conn      initiator --------------------------> target    in the domain of the EP
//	           one queue at a time: SendWR.SRQN          \--> XRC SRQ, one for each uct.Queue
//
// A message to a queue goes from the sender's memory to that of the receive, by the devices.
// One without a receive waits in the sender's device (RNR, retried for ever), and with it what
// is behind it on its connection; other connections and the RC QP do not.
//
// The files have rooms (internal/archtest/rooms/xrccore.txt): queueSet and queueEP are the queues, node, path and
// initiator the shared nodes. Neither of both uses the other; Iface and EP put them together.
//
// # Connections to nodes
//
// With Config.ShareDomain there are no RC QPs: the iface is in an XRC domain, a node, that ifaces
// of its memory domain share (process), or those of all processes of the user on the host (host).
// Messages of all its EPs arrive in one XRC SRQ, and what it posts to any iface of a
// domain goes over one initiator. So n ifaces on each of m nodes have n*m initiators and
// targets on each node, where rc has n*n*m QPs.
//
//	process a of node X                       node Y
//	EP 1 -- path 1 --.                                .--> SRQ of b1   EP 4
//	EP 2 -- path 2 ---+-- initiator ------> target --+--> SRQ of b2   EP 5
//	                      SendWR.SRQN        a's, in the domain Y
//
// An EP's address has all that the peer needs, so there is no message before the first: the
// domain, the number of the SRQ, an initiator and a target that were made for the EP. If the
// iface has an initiator to the peer's domain, which is not held back, the EP takes that, and
// gives its own up. The peer learns it from the first message, whose completion names another
// target: then it refers to that (verbs.XRCD.OpenQP), and gives up the one that it had offered.
// The immediate of a message has the number of the receiver's EP (docs/wire.md), so that there
// are no puts with notification. A message that overtakes the Connect of its EP is kept until
// then.
//
// Processes of a host find their domain by a file (ib.DomainFile). An initiator to the own domain has
// a target that its iface makes: no other process takes it along when it dies.
//
// Paths share the send queue: each reserves places in it, as it does in the completion queue. All
// work requests are signaled; one of an EP that has fallen silent would keep its place. What a peer
// has no receive for holds up all that is behind it, which credits prevent unless
// a process does not run.
//
// # When a work request fails
//
// The device stops the initiator at the first one that fails. Its EP fails, with its status. The others
// are not to suffer, and nothing may be executed twice:
//
//   - The target refused it (bad key, no such SRQ as the iface there is closed, or its process dead): all
//     before it was executed and nothing behind. That is held back, in the copies that the initiator
//     keeps, and so is what is posted meanwhile. The target is in ERR too. In the own domain the
//     iface connects it again. Otherwise the device tells all that refer to it. Each makes another
//     one and offers it over its own initiator. The first offer for the target that
//     failed is taken, also one that comes before its completion: the initiator is connected again. It
//     posts what it held back, without what was of the EP that failed.
//   - The peer did not answer, or an error was found here, or the device had stopped the initiator before: what
//     was executed is not known. All EPs over the initiator fail, with ErrTimedOut if the peer did not answer,
//     else with ErrConnReset or ErrPeerClosed. A new EP makes a new initiator. The peers are
//     not notified: nothing is sent over the old one. Their EPs accept work until this process ends.
//   - No offer came in the time that the device would have tried (TIMEOUT, RETRY_COUNT). All EPs over the
//     initiator fail likewise, with ErrTimedOut: their peers may live.
//
// The device reports that a peer's device is gone. EPs to it fail with ErrConnReset; the initiator continues, unless
// something was in flight to them. When a process of each of two domains dies at once,
// initiators of both may be held back, and with them the offers for each other: then
// all EPs between the two fail when the time for an offer is over, also of processes that live. A user
// with another transport takes that for their operations then, as after any ErrTimedOut.
//
// An EP that has failed, or is closed, with work requests in flight cannot take them back
// without the others': it leaves them to the device until the iface is closed.
//
// # Connections to queues
//
// An EP has QUEUE_CONNS of them, made when they are first attached. Initiator and target are
// connected by two control messages over the EP, ask and answer; sends that are posted
// meanwhile are held back. A connection whose queue is not there, or that was recalled, is
// in ERR on either side, and is connected again in the same way, with the same QPs and
// another first PSN. The initiator is in ERR, with all work requests flushed, before it asks:
// nothing that was recalled is received later. Queues are in a private domain of the EP also
// with Config.ShareDomain: the device refuses what other peers send there, and a message that waits
// for a receive holds up nothing else.
//
// # One completion queue
//
// The queues complete in the completion queue of the core, which so wakes for all of them.
// What it must have room for, receives that are posted and sends that are under way, is
// bounded by QUEUE_CQ_LEN: a queue takes its depth from it, a connection QUEUE_TX_LEN.
//
// When it fails, nothing that is under way completes any more. The device is made to let go of it first:
// initiators go to RESET, and XRC SRQs are stopped, for which a peer in the middle of a message is waited
// for. Then all ends with ErrIO. Peers find no queue, as after a Stop.
package xrccore
