// Package self is the loopback transport: messages to the own iface, put, get and
// atomics on the own memory, all by the CPU.
//
//	md, _ := self.New(self.Config{}).OpenMD("self")
//	iface, _ := md.OpenIface(uct.IfaceParams{Transport: "self", Device: "memory"})
//
// # Active messages
//
// The contract has handlers run inside Progress, so a message is stored in the
// receiving iface's queue and handed over by its next Progress, in place: a short
// one lies in its slot, a longer one in a segment that the handler may keep. UCX
// calls the handler inside the sender's call instead; the queue costs a few ns
// more and spares the application reentrancy (see experiment 0072 in docs/perf).
//
// # Put, get, atomics
//
// They are complete when the call returns. The key names a slot of the domain's
// table and is checked on every operation: region, range and right. Allocated
// memory is Go memory, kept alive by its region, so an operation that overlaps with
// Mem.Close never touches memory that is somebody else's.
//
// # Groups
//
// An iface reaches itself. Ifaces that one goroutine drives together may be opened
// with the same Group and then reach each other.
package self
