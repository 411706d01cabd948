// Package self is the loopback transport: messages to the same iface, and put, get and
// atomics on memory of this process, all by the CPU.
//
//	md, _ := self.New(self.Config{}).OpenMD("self")
//	iface, _ := md.OpenIface(uct.IfaceParams{Transport: "self", Device: "memory"})
//
// # Active messages
//
// According to the contract, handlers run inside Progress. So a message is stored in the
// queue of the receiving iface, and its next Progress passes it to the handler without a copy: a small
// message is in its slot, a larger one in a segment that the handler may own. UCX
// instead calls the handler inside the sender's call. The queue costs a few ns
// more, but applications need not be reentrant (see experiment 0072 in docs/perf).
//
// # Put, get, atomics
//
// They are complete when the call returns. The key names a slot of the domain's
// table and is checked on every operation: region, range and right. Allocated
// memory is Go memory, which its region keeps reachable. So an operation that overlaps with Mem.Close never accesses memory
// that was reused.
//
// # Groups
//
// An iface reaches itself. Ifaces that one goroutine drives together may be opened
// with the same Group and then reach each other.
package self
