// Package sm is the shared-memory transport between processes of one host.
//
//	  initiator                                    target
//	+-----------+     link segment (memfd)      +-----------+
//	| EP        |--> slots, long messages -----> | Iface     |
//	|           |     table (read-only)          |           |
//	|           |<-- memory regions ------------ | MD        |
//	|           |     arena                      |           |
//	|           |==> put, get, atomics =========>| (no CPU)  |
//	+-----------+    unix socket: opens, closes  +-----------+
//
// An iface listens on an abstract unix socket (package internal/attach: same user,
// or one of Config.AllowUIDs). With Config.SocketDir it listens on a socket file, which processes in other
// network namespaces can find. The first post on an EP dials the socket in the background, or itself with
// Config.DialInPost; until the EP is connected, posts return ErrNoResource. All memory is in memfds, whose descriptors are
// passed over the socket. So no files remain after a process was killed, except its
// socket file, which the next iface removes.
//
// All links between two processes share one unix socket (docs/design/0019); each peer iface uses one more descriptor, of
// the pipe that wakes it. EPs of one iface to the same peer share one link. All ifaces of a process
// share the mappings of a peer's table and arena. Links between two ifaces of one process have no socket, and up to 64 of them
// share one mapping. Only the part of the arena that the peer
// has allocated is mapped; operations map more when needed (outLink.mapMore). If a mapping
// fails, the EPs fail with ErrNoMemory, when they connect or later.
//
// # Active messages
//
// Every link has a ring from one sender to one receiver, so it needs no lock and
// no compare-and-swap. If a sender is killed, at worst one message was not published. A slot has 128 bytes; one store
// to its first word publishes it. Larger messages are in segments of the link, which the receiver returns
// together with their slots. The segments are used in turn, so that the sender can prefetch the cache lines of the next
// one. The receiver claims the lines when it reads them, because a store to a line that both caches share is slow
// (experiment 0073 in docs/perf). The receiver polls the rings of up to attentionMin peers one by one;
// with more peers, senders also set a word in its control block (see attention.go).
//
// Handlers get no uct.Desc: they must copy messages. Each segment that a handler retained would reduce the window of
// the sender, which could stall before it sends the message for which the handler waits. Moreover the peer can still
// write to the segment, and it is unmapped with the link. A copy of 8 KiB costs less than
// protection against this for every message.
//
// # Put, get, atomics
//
// Memory from MD.Alloc is in the domain's arena, which peers map: their CPUs execute
// the operations, also while the target is stopped. Every operation looks up its key in
// the target's table, which lists the current regions. Mem.Close removes the key from the table and
// then waits until no peer accesses the region, which takes microseconds,
// or as long as a copy: see retire.go. If the peer is stopped during an access, the memory is
// quarantined until the peer continues or dies (counters domain_quarantined, number of regions, and
// domain_quarantined_bytes, current bytes); at most half of the arena can be in quarantine.
//
// Memory from MD.Reg is accessed by cross-memory attach. If the kernel forbids that,
// and for atomics, the target executes the operation in its Progress, and Explain returns the reason. GetShort
// cannot wait for the target: it is claimed only with CMA=y, which rejects peers whose memory cannot
// be accessed by cross-memory attach. If an access of a peer does not end, Close of such memory fails with
// ucs.InUseError, because the caller owns the memory.
//
// # Failure and sleep
//
// When a process dies, the kernel closes its socket, which all links to it share. The EPs to the process then fail
// with ErrConnReset, after all its messages were delivered. An iface that closes
// sets a flag in its links before it disconnects: the EPs of peers fail with ErrPeerClosed. Its links remain mapped until
// the peers have disconnected too, because they contain the guards. A receiver that sleeps sets a bit
// in its control block; only then a sender makes a system call.
package sm
