package sm

import (
	"time"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
)

// Closing memory takes its key out of the table and then waits for the peers that are
// inside, as package guard says. A visit is one access of a peer: loads and stores of mapped memory, or a
// system call of cross-memory attach, in which the kernel copies until the call returns. What this side
// does for peers that ask, it does with MD.mu held.
//
// A living peer says that it has closed a link, which it does outside of visits. If a
// peer is killed, the kernel closes its socket when the last of its threads gives up the
// descriptors (exit_files). Such a thread has left user mode for good and has returned from
// process_vm_writev, so nothing of the peer copies any more.

// allocPatience is how long closing allocated memory waits before it leaves the memory in
// quarantine. A copy of 1 MiB takes 15 us.
const allocPatience = 200 * time.Microsecond

// revoke gives back what m has, whose key is gone from the table, when no peer is inside.
// Registered memory: InUseError if that takes too long. Allocated memory goes into
// quarantine then.
func (md *MD) revoke(m *Mem) error {
	limit := allocPatience
	if m.pin != nil {
		limit = ucs.RevokeLimit
	}
	inside := md.owner.Await(md.visitors(m), limit)
	if len(inside) > 0 && m.pin != nil {
		return guard.InUse(inside)
	}
	md.owner.Free(inside, len(m.buf), func() { md.reclaim(m) })
	md.owner.Reclaim()
	return nil
}

// visitors lists the peers that are inside m. A peer that raises its guard later sees that
// the key is gone: the barrier pairs with outLink.enter.
func (md *MD) visitors(m *Mem) (in []guard.Visit) {
	if md.expedited {
		barrier()
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	for l := range md.links {
		if v, region := guard.Look(l, &l.rx.hdr.guard); region != 0 && region == regionOf(m.key) {
			in = append(in, v)
		}
	}
	return in
}
