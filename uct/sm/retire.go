package sm

import (
	"time"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/ucs"
)

// Mem.Close removes the key from the table and then waits for the visits of peers, as package guard
// describes. A visit is one access of a peer: loads and stores of mapped memory, or a
// system call of cross-memory attach, in which the kernel copies until the call returns. This side executes
// operations for peers with MD.mu locked.
//
// A living peer closes a link only outside of visits. If a
// peer is killed, the kernel closes its socket when its last thread releases the
// descriptors (exit_files). Such a thread does not return to user mode and has returned from
// process_vm_writev, so no thread of the peer copies any more.

// allocPatience limits the time for which closing allocated memory waits before the memory is
// quarantined. A copy of 1 MiB takes 15 us.
const allocPatience = 200 * time.Microsecond

// revoke releases m, whose key was removed from the table, when no peer accesses it. If
// an access takes too long, it returns InUseError for registered memory, and quarantines allocated memory.
func (md *domain) revoke(m *memory) error {
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

// visitors returns the visits of peers in m. A peer that sets its guard later sees that
// the key is invalid: the barrier pairs with outLink.enter.
func (md *domain) visitors(m *memory) (in []guard.Visit) {
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
