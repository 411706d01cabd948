// Package softhca is a software host channel adapter: a device whose queues have
// the format of mlx5 hardware, executed by the CPU.
//
// It checks what hardware checks: QP states, protection domains, keys, bounds,
// access rights, opcodes and lengths. It completes in order, moves QPs to ERR on a
// fault, with the syndrome of each side, and flushes them.
//
//	doorbell ── Ring ── queuePair.run ── shortWrites: inline writes to mapped memory
//	                                  '── step
//	                                      |-- write, read, atomic: the peer's memory, here and now
//	                                      |-- send of XRC:         the receive that is shown, here and now
//	                                      '-- send, immediate:     a packet in the request ring
//	poller ──── Drive ── requests (responder), responses, run list, timers
//	engine ──── Drive    when no caller polls
//
// # Fabrics
//
// On the loop fabric a device reaches its own QPs only. On the shm fabric
// processes of one user on one host reach each other; see package attach for how
// they find each other and what they trust each other with. What an initiator may
// do is in the target's table, which it reads but cannot write. A generation in it tells
// an initiator that what it has checked still holds:
//
//   - Memory from Context.AllocBuffer lies in the device's arena, which peers map.
//     RDMA and atomics on it are executed by the initiator alone, also while the
//     target is stopped.
//   - Other memory is reached by cross-memory attach, also without the target.
//     Atomics on it, and everything where the kernel forbids cross-memory attach,
//     are executed by the target, whose pollers or engine must run.
//   - Sends go through a ring, as packets of at most a path MTU.
//
// # XRC
//
// Every message of an XRC initiator names an SRQ in the domain of its target. What is posted
// to an XRC SRQ is shown in the table, up to 32 receives, so that an initiator can do alone
// what for other sends the target does:
//
//	initiator                                  target
//	                                           post: receive n in the table
//	claim word: 0, n -> self, n
//	bytes to the memory of receive n, guard up
//	OpFilled in the request ring
//	claim word: self, n -> 0, n+1              poll or engine: completion of receive n
//
// A send ends when the notice is in the ring, also while the target is stopped. What is
// claimed and not in a notice goes back to the queue when the process of its initiator
// dies; what has been passed over without a notice is flushed then. Closing the SRQ hides
// it, waits for guards as deregistering does, and then completes what the notices in the
// rings say. What an initiator cannot do takes the ring: the loop fabric, a receive of
// more than three pieces, a message that is too long (for the target to refuse), memory
// that cross-memory attach does not reach.
//
// A message that finds no receive waits with all that is behind it in its QP. With a limit
// of retries that is the delay of the target, again and again. Without one (7) the QP
// sleeps until the target has posted to any of its queues, which tells those who wait: no
// timer runs, and no processor.
//
// An SRQ number that the domain of the target does not have, or not any more, is
// REM_INV_REQ for the initiator, and the target goes to ERR with EventQPReqErr. A target
// whose initiator's device is gone goes to ERR too; not where that device has given up a link
// alone, as after a dial that took it too long.
//
// # Shared XRC domains
//
// A domain that is opened by a descriptor is one of all devices of the user on the host that
// open the same inode on the shm fabric; on loop, of one device. Its directory (package
// xrcdomain) is mapped by all: which device has an SRQ number, and the targets, with their
// state, their initiator and the devices that refer to them.
//
//	initiator                      directory                     member
//	connected over any member  ->  its target is there
//	send to an SRQ number      ->  the member that has it   ->   the SRQ, as above
//
// The initiator has a link and message numbers of their own for each member that it sends to,
// and goes from one to the next when nothing is in flight: the order of a QP holds, and a
// message that waits holds up those behind it, also those for others. A member to which
// packets come over a target has a responder for it, whether it has opened the target or not.
// To whom a message goes is one load; a new member costs a dial.
//
// What of a domain is gone, and how its initiator learns it:
//
//	no such SRQ number, closed, of another domain    REM_INV_REQ, the target goes to ERR
//	the number of a process that has left            the same
//	the number of a process that is dead, also one   the same, with VendorPeerGone
//	that dies with a message of the QP on its way
//	a process that is dead or has left, and nothing  EventUnreachable of its port; the QP goes on
//	is on its way to it
//	a process that is stopped                        its posted receives are filled; then RNR
//	one that was stopped before the first message    REM_OP_ERR after Config.DialTimeout, the
//	for it                                           target goes to ERR
//	the process that made the target                 nothing: another one refers to it
//	the last process that refers to the target       RETRY_EXC, or an event if nothing is posted
//	the process it was connected to, before the      RETRY_EXC
//	first message
//	all processes stopped before the first message   RETRY_EXC after 5 s
//
// A fault of the target is seen by all that have it open as its state, and all of them are told
// by an event: who finds it notes it in the directory, and calls the others by the sockets at
// which they give the directory to those that join. EventQPFatal says that the initiator's
// device is gone.
//
// A process that dies takes its SRQs along, as in hardware, where the kernel closes them. So
// a message that was on its way to it is refused, and those behind it can be sent again over
// another target: nothing of them has arrived anywhere else. The target is told by the members that
// the initiator has links with, or by another one that refers to it. A member may hear of it
// after another one has reset the target and connected it again, and knows by the first PSN which
// connection it is of: the next one needs another first PSN.
//
// Only the initiators of this user find the directory. When the last process that
// refers to a target is killed, and has no link with the initiator, the target goes on until
// a link of the initiator ends. An initiator without limit of retries that waits for a receive
// of one member does not see that another one resets or closes the target, until that
// receive comes.
//
// # Order and completion
//
// The work requests of a QP take effect in order. An RDMA write, read or atomic
// behind a send waits for its acknowledgement, so a target that does not run holds
// up what is behind a send, and nothing else. A completion of a write means that the
// bytes are in the target's memory.
//
// # Faults
//
// A peer that dies hangs up its socket: every QP connected to it goes to ERR with
// RETRY_EXC on its oldest work request. So does one that closes its device; the vendor
// error of the completion, or an event if nothing was posted, tells the two apart. A QP
// posted to before its peer is ready looks again until the local ACK timeout, times the
// retries, is over; if the peer's QP was destroyed, RETRY_EXC comes at once. A datagram to a peer
// that takes nothing from its full ring for 100 ms is dropped, as are those behind it until it
// does. Datagrams to a port that does not exist raise EventUnreachable; so does the end of the last
// link with a port, in either direction, on every UD QP of the device.
//
// # Taking memory back
//
// Each QP of a peer has a guard, which names the region that the QP is accessing.
// Deregistering makes the key invalid and then waits for the guards that are up for that
// key, each until its sequence number has moved on: for as long as a copy of
// Config.InlineBudget takes, whatever else peers do. A peer that has stopped in the
// middle is waited for up to ucs.RevokeLimit if the memory is the caller's. Memory of the
// device is not waited for: it is in quarantine until that peer is out or dead.
//
// # Peers that are not trusted
//
// A peer may write anything to the rings that it shares with the device, at any time.
// Headers are copied and checked before they are used. A request must go on with the
// message that is open, or begin one: kind, place, number, sum of lengths; else the QP
// goes to ERR, with EventQPReqErr, and the requester is told REM_INV_REQ. An answer must
// be one that the oldest request can have; else that request ends with BAD_RESP. So
// nothing is written but to receives, reads and atomics that have been posted and have
// not completed, and to regions that grant it. A peer that is connected to an XRC target can
// say that it has filled a receive without having done it (in a shared domain, any process of
// this user), and by writing to the claim words keep an XRC SRQ from receiving until it is
// gone: it makes receives complete or wait, and the device write nowhere else. A ring with
// malformed records takes its
// link down.
//
// # Virtual time
//
// With Config.Timing the device runs under a model of the path between processor and
// NIC (package timing): bytes move as always, completions are held back until the
// model says that a core could see them. In a model of a network (timing.NewNetwork) bytes
// move when they arrive.
package softhca
