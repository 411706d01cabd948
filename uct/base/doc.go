// Package base implements parts of the contract of package uct that most transports share:
// pending queues with a fair arbiter, the active-message table, a
// list of endpoints, completions of flushes over several endpoints, the checks of
// OpenIface, types to embed for missing variants, and the memory of a domain over messages.
//
// Only [Memory] and [Users] have locks: the goroutine that owns the iface calls everything else.
// Only [List.Add], [FlushGroups.Get] when the pool grows, [OpenParams], and functions that register memory
// allocate.
//
// An iface has one [Arbiter], and each EP has one [PendingQueue]:
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
