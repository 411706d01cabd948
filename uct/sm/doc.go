// Package sm is the shared-memory transport between processes of one host.
//
//	  initiator                                    target
//	+-----------+     link segment (memfd)      +-----------+
//	| EP        |--> slots, long messages -----> | Iface     |
//	|           |     table (read-only)          |           |
//	|           |<-- what memory there is ------ | MD        |
//	|           |     arena                      |           |
//	|           |==> put, get, atomics =========>| (no part) |
//	+-----------+    unix socket: opens, closes  +-----------+
//
// An iface listens on an abstract unix socket (package internal/attach: same user,
// or one of Config.AllowUIDs), or on a socket file, by which processes find each other that share
// Config.SocketDir but no network namespace. The first post on an EP dials it in the background;
// until it has answered, posts return ErrNoResource. All memory is in memfds that
// travel over the socket: there is no file, so nothing is left behind, but for the
// socket file of a process that was killed, which the next iface removes.
//
// All links between two processes share one unix socket (docs/design/0019); a peer iface takes one descriptor more, of
// the pipe that wakes it. EPs of one iface that lead to the same peer share one link. The ifaces of a domain
// share what is mapped of a peer's table and arena, and of the arena only what the peer
// has allocated so far: another operation maps more (outLink.extended). If that finds no
// room, the EPs fail with ErrNoMemory, when they connect or later.
//
// # Active messages
//
// Every link has a ring of its own from one sender to one receiver, so no lock and
// no compare-and-swap, and a sender that is killed at any point leaves at worst a
// message that was never published. A slot is 128 bytes; one store of its first
// word publishes it. Longer messages lie in segments of the link, which come back
// with their slots. They take turns, so that the sender can fetch the lines of the next one
// while it does something else; the receiver takes the lines from the sender's cache when it
// reads them, as a line that both have is slow to store to (experiment 0073 in docs/perf). The receiver polls the rings of a few peers one by one;
// beyond that, senders also mark a word in its control block (see attention.go).
//
// Handlers get no descriptor to keep a message by. Its segment is one of the few that
// this sender has: the more are kept, the sooner it stands still, maybe for the very
// message that the keeper waits for. And it is memory that the peer still writes to,
// and that goes with the link. A copy of 8 KiB costs less than what would prevent all
// that for every message.
//
// # Put, get, atomics
//
// Memory from MD.Alloc lies in the domain's arena, which peers map: their CPUs do
// the work, also while the target is stopped. Every operation looks up its key in
// the target's table, which says what is there now. Mem.Close takes the key away and
// then waits until no peer is inside that region any more, which takes microseconds,
// or a copy: see retire.go. What a peer is inside of that was stopped stays in
// quarantine until it goes on or dies (counters domain_quarantined, of regions, and
// domain_quarantined_bytes, of what is there now); at most half of the arena may be.
//
// Memory from MD.Reg is reached by cross-memory attach. Where the kernel forbids that,
// and for atomics, the target does it in its Progress, and Explain says why. GetShort
// cannot wait for that: it is claimed with CMA=y only, which refuses peers that cannot
// be attached to. As the memory is the caller's, Close fails with ucs.InUseError where
// a peer stays inside.
//
// # Failure and sleep
//
// The kernel closes the socket of a process that dies, which all links to it share; that fails the EPs that lead
// there, after everything it had sent was delivered, with ErrConnReset. An iface that is
// closed says so in its links before it hangs up: ErrPeerClosed. Its links live on until
// the peers have hung up too, for the guards in them. A receiver that sleeps says so
// in its control block, and only then does a sender make a system call.
package sm
