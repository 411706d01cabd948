// Package base holds what most transports need and the contract of package uct
// does not force: pending queues with a fair arbiter, the active-message table, a
// list of endpoints, the checks of OpenIface, and refusals to embed.
//
// Nothing here locks: all of it belongs to the goroutine that owns the iface.
// Nothing allocates except [List.Add] and [OpenParams].
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
