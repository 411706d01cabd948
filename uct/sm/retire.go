package sm

import (
	"slices"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/internal/memop"
)

// Closing memory takes its key out of the table and then waits for the peers that are
// inside. A visit is one access of a peer: loads and stores of mapped memory, or a system
// call of cross-memory attach, in which the kernel copies until the call returns. The peer's
// guard shows the visit from begin to end. What this side does for peers that ask, it does
// with MD.mu held. A guard names the region and the visit, so that a closing region waits
// neither for visits elsewhere nor for later ones.
//
// A visit is over when the guard shows something else, or when the peer has hung up.
// A living peer hangs up when it has closed its EP, which it does outside of visits. If a
// peer is killed, the kernel closes its socket when the last of its threads gives up the
// descriptors (exit_files). Such a thread has left user mode for good and has returned from
// process_vm_writev, so nothing of the peer copies any more.

// visit is a peer that is inside a region: as long as its guard has this value.
type visit struct {
	link *inLink
	word uint32
}

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
	inside := md.await(md.visitors(m), limit)
	if len(inside) > 0 && m.pin != nil {
		return &ucs.InUseError{PIDs: pidsOf(inside)}
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	if len(inside) > 0 {
		md.quarantine.add(m, inside)
	} else {
		md.reclaim(m)
	}
	md.emptyQuarantine()
	return nil
}

// visitors lists the peers that are inside m. A peer that raises its guard later sees that
// the key is gone: the barrier pairs with guard.enter.
func (md *MD) visitors(m *Mem) (in []visit) {
	if md.expedited {
		barrier()
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	for l := range md.links {
		if word := l.visit(); uint64(word)&regionMask == m.key&memop.KeyIndexMask {
			in = append(in, visit{l, word})
		}
	}
	return in
}

// await waits until the visits are over, or for limit, and returns those that go on.
func (md *MD) await(in []visit, limit time.Duration) []visit {
	timelimit.Await(limit, func() bool {
		in = md.ongoing(in)
		return len(in) == 0
	})
	return in
}

// ongoing leaves those of the visits that go on.
func (md *MD) ongoing(in []visit) []visit {
	if len(in) == 0 {
		return nil
	}
	md.mu.Lock()
	defer md.mu.Unlock()
	return slices.DeleteFunc(in, md.isOver)
}

// isOver reports whether a visit is over. md.mu is held, so that a link of md.links stays
// mapped.
func (md *MD) isOver(v visit) bool {
	_, open := md.links[v.link]
	return !open || v.link.visit() != v.word
}

// pidsOf lists the processes of visits, in order, those that are visible in this pid
// namespace.
func pidsOf(in []visit) (pids []int) {
	for _, v := range in {
		if pid := v.link.in.PeerPID; pid != 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
