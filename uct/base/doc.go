// Package base holds what most transports need and the contract of package uct
// does not force: pending queues with a fair arbiter, the active-message table, a
// list of endpoints, completions of flushes over many endpoints, the checks of
// OpenIface, refusals to embed, measured costs, and the memory of a domain over messages.
//
// Nothing here locks, but [Memory] and [Users]: all else belongs to the goroutine that
// owns the iface.
// Nothing allocates except [List.Add], [FlushGroups.Get] while there are more groups
// than ever before, [OpenParams], and what registers memory.
//
// An iface holds one [Arbiter] and each EP one [PendingQueue]:
//
//	func (e *EP) AddPending(r *uct.PendingReq) error {
//		if e.hasResources() && e.pending.Empty() {
//			return uct.ErrBusy
//		}
//		return e.iface.arbiter.Add(&e.pending, r)
//	}
//
//	func (e *EP) AMShort(...) error {
//		if e.tx.free == 0 || e.pending.Blocks() {
//			return uct.ErrNoResource
//		}
//		...
//
//	func (i *Iface) Progress() int {
//		n := i.poll()
//		if n > 0 {
//			i.arbiter.Dispatch(i)
//		}
//		return n
//	}
package base
