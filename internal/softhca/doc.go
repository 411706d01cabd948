// Package softhca is a software host channel adapter: a device whose queues have
// the format of mlx5 hardware, and whose work requests the CPU executes.
//
// It checks what hardware checks: QP states, protection domains, keys, bounds,
// access rights, opcodes and lengths. Work requests complete in order. On a fault the
// device moves the QPs of both sides to ERR, each with its syndrome, and flushes them.
//
//	doorbell ── Ring ── queuePair.run ── shortWrites: inline writes to mapped memory
//	                                  '── step
//	                                      |-- write, read, atomic: access to the peer's memory, at once
//	                                      |-- send of XRC:         fills a receive in the peer's table, at once
//	                                      '-- send, immediate:     a packet in the request ring
//	poller ──── Drive ── requests (responder), responses, run list, timers
//	engine ──── Drive    when no caller polls
//
// # Fabrics
//
// On the loop fabric a device reaches only its own QPs. On the shm fabric
// processes of one user on one host reach each other; package attach describes how
// they discover each other and how far they trust each other. The table of the target says
// what an initiator may do; the initiator maps it read-only. While the generation in the table
// does not change, earlier checks of the initiator are valid:
//
//   - Memory from Context.AllocBuffer is in the arena of the device, which peers map.
//     The initiator executes RDMA and atomics on it alone, also while the target is
//     stopped.
//   - The initiator accesses other memory by cross-memory attach, also without the target.
//     The target executes atomics on such memory, and all operations if the kernel
//     forbids cross-memory attach. Its pollers or its engine must run for that.
//   - Sends go through a ring, in packets of at most a path MTU.
//
// # XRC
//
// Each message of an XRC initiator names an SRQ in the domain of its target. The target
// publishes the first 32 receives of an XRC SRQ in its table, so that the initiator can do
// what the target does for other sends:
//
//	initiator                                  target
//	                                           post: receive n in the table
//	claim word: 0, n -> self, n
//	bytes to the memory of receive n, guard up
//	OpFilled in the request ring
//	claim word: self, n -> 0, n+1              poll or engine: completion of receive n
//
// A send completes when its notice is in the ring, also while the target is stopped. When the
// process of an initiator dies, a receive that it has claimed without a notice returns to the
// queue, and the target flushes receives that were skipped without a notice. Closing the SRQ
// hides it, waits for guards as deregistration does, and then completes the receives that
// have a notice in a ring. A send uses the ring as on RC if the initiator cannot execute it: on
// the loop fabric, for a receive with more than three SGEs, for a message that is too long
// (the target rejects it), and for memory that cross-memory attach does not reach.
//
// A message that finds no receive waits, and so do the later ones of its QP. If the RNR
// retries are limited, the QP tries again after the delay that the target requests. If they
// are not (7), the QP sleeps until the target posts to any of its queues and wakes the
// waiting QPs: this takes neither a timer nor CPU time.
//
// If the domain of the target has no SRQ with the number, or has it no longer, the initiator
// gets REM_INV_REQ, and the target goes to ERR with EventQPReqErr. A target also goes to ERR
// when the device of its initiator is gone, but not if that device has only closed the link,
// for example after a dial that timed out.
//
// # Shared XRC domains
//
// A domain that is opened by a descriptor is shared: on the shm fabric by all devices of the
// user on the host that open the same inode, on loop by the XRCDs of one device. All members
// map its directory (package xrcdomain). It contains the member of each SRQ number, and the
// targets, with their state, their initiator and the devices that refer to them.
//
//	initiator                      directory                     member
//	connected over any member  ->  has the target
//	send to an SRQ number      ->  names the member of it   ->   the SRQ, as above
//
// The initiator has a link and a sequence of message numbers for each member that it sends to.
// It switches to another member only when no message is in flight. So the messages of a QP
// stay in order, and a message that waits delays the later ones, also those to other
// members. A member that receives packets over a target has a responder for it, whether or
// not it has opened the target. Finding the member of a message is one load; a new member
// costs a dial.
//
// How parts of a domain fail, and how the initiator is affected:
//
//	SRQ number unknown, closed or of another domain  REM_INV_REQ, the target goes to ERR
//	number of a process that has left                the same
//	number of a dead process, which may have died    the same, with VendorPeerGone
//	with a message of the QP in flight
//	process dead or has left, and no message to it   EventUnreachable of its port; the QP
//	in flight                                        continues
//	process stopped                                  its posted receives are filled; then RNR
//	process stopped before the first message to it   REM_OP_ERR after Config.DialTimeout, the
//	                                                 target goes to ERR
//	creator of the target gone                       none, if another process refers to the target
//	last process that refers to the target gone      RETRY_EXC, or an event if nothing is posted
//	process that the initiator connected to gone     RETRY_EXC
//	before the first message
//	all processes stopped before the first message   RETRY_EXC after 5 s
//
// Every device that has the target open sees its fault in its state and raises an event: the
// device that detects the fault records it in the directory, and notifies the others over the
// sockets from which joining processes get the directory. EventQPFatal means that the
// device of the initiator is gone.
//
// The SRQs of a process that dies are closed, as the kernel closes those of hardware. So
// a message in flight to it is rejected, and the later ones can be sent again over
// another target: none of them has arrived anywhere. The members that the initiator has links
// with, or another one that refers to the target, report the fault to the target. Such a report
// may arrive after another member has reset the target and connected it again. The first PSN
// identifies the connection of a report, so the next connection must have another first PSN.
//
// Only initiators of this user find the directory. If the last process that refers to a
// target is killed and has no link with the initiator, the initiator detects that only when
// one of its links goes down. An initiator with unlimited retries that waits for a receive of one
// member does not detect that another member resets or closes the target, until that
// receive is posted.
//
// # Order and completion
//
// The work requests of a QP take effect in order. An RDMA write, read or atomic
// behind a send waits for its acknowledgement, so a target that does not run delays only
// work requests behind a send. The completion of a write means that the bytes are in the
// memory of the target.
//
// # Faults
//
// When a peer dies, its socket hangs up: every QP connected to it goes to ERR with
// RETRY_EXC on its oldest work request. The same happens when a peer closes its device; the
// vendor error of the completion, or the event if nothing was posted, distinguishes the two.
// If a QP posts before its peer is ready, it polls the state of the peer for the local ACK
// timeout, multiplied by the number of tries; if the QP of the peer was destroyed, it gets
// RETRY_EXC at once. If a peer consumes nothing from its full ring for 100 ms, datagrams to it
// are dropped until it does. Datagrams to a port that does not exist raise EventUnreachable.
// When the last link with a port goes down, in either direction, every UD QP of the device gets
// EventUnreachable.
//
// # Revoking memory
//
// Each QP of a peer has a guard, which names the region that the QP is accessing.
// Deregistration invalidates the key and then waits for the guards of accesses with this
// key, each until its sequence number changes: for as long as a copy of
// Config.InlineBudget takes, whatever else peers do. If the memory is the caller's, it waits
// up to ucs.RevokeLimit for a peer that has stopped during an access. It does not wait for
// memory of the device, which is in quarantine until the access is over or the peer is dead.
//
// # Untrusted peers
//
// A peer may write anything to the rings that it shares with the device, at any time. The
// device copies and checks headers before it uses them. A request must continue the open
// message or begin one: operation, place, number, sum of lengths. If it does not, the QP
// goes to ERR with EventQPReqErr, and the requester gets REM_INV_REQ. A response must
// be possible for the oldest request; if it is not, that request completes with BAD_RESP. So
// the device writes only to the buffers of receives, reads and atomics that are posted and
// not completed, and to regions with access for the peer. A peer that is connected to an XRC
// target (in a shared domain, any process of this user) can report a receive as filled
// without having filled it, and can keep an XRC SRQ from receiving by writing to its claim
// words, until it is gone. This makes receives complete or wait, but the device writes
// nowhere else. A malformed record in a ring takes its link down.
//
// # Virtual time
//
// With Config.Timing the device runs under a model of the path between CPU and
// NIC (package timing): the device moves bytes as usual, and withholds each completion until a
// core could see it according to the model. In a model of a network (timing.NewNetwork) bytes
// move when they arrive.
package softhca
