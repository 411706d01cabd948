// Package softhca is a software host channel adapter: a device whose queues have
// the format of mlx5 hardware, executed by the CPU.
//
// It checks what hardware checks: QP states, protection domains, keys, bounds,
// access rights, opcodes and lengths. It completes in order, moves QPs to ERR on a
// fault, with the syndrome of each side, and flushes them.
//
//	doorbell ── Ring ── queuePair.kick ── shortWrites: inline writes to mapped memory
//	                                   '── step
//	                                       |-- write, read, atomic: the peer's memory, here and now
//	                                       '-- send, immediate:     a packet in the request ring
//	poller ──── Drive ── requests (responder), responses, run list, timers
//	engine ──── Drive    when nobody polls
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
// RETRY_EXC on its oldest work request. A QP posted to before its peer is ready
// looks again until the local ACK timeout, times the retries, is over. Memory that
// is deregistered while a stopped peer is in the middle of touching it is kept
// until the peer goes.
//
// # Virtual time
//
// With Config.Timing the device runs under a model of the path between processor and
// NIC (package timing): bytes move as always, completions are held back until the
// model says that a core could see them.
package softhca
