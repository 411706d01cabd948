package guard

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gucx/gucx/internal/timelimit"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
)

// Peer is a visitor as the owner sees it.
type Peer interface {
	// Present reports whether the peer may access the memory and its guards are mapped. Owner.Links is
	// locked. After it has returned false it always returns false.
	Present() bool
	// PID is the process of the peer; 0 if it is not visible here.
	PID() int
}

// Visit is a visit that was in progress when the owner looked at its guard. Visits can be compared.
type Visit struct {
	// Tag is for the owner, which may store another value that it has read with the guard.
	Tag  uint32
	peer Peer
	word *Word
	seen uint64
}

// Look returns the visit of a peer by its guard, and the region; 0 if no visit is in progress. Before, the owner
// must have cleared the key and executed a barrier. Owner.Links is locked.
func Look(p Peer, w *Word) (v Visit, region uint64) {
	if !p.Present() {
		return Visit{}, 0
	}
	v = Visit{peer: p, word: w, seen: w.load()}
	return v, v.seen & RegionMask
}

// Over reports whether the visit has ended. Owner.Links is locked.
func (v Visit) Over() bool { return !v.peer.Present() || v.word.load() != v.seen }

// Owner waits for visits. Any goroutine may call its methods, without the lock of Links.
type Owner struct {
	// Links is the lock that is held while guards are read: a peer that is present stays mapped.
	Links sync.Locker

	Quarantined      stats.Counter // regions that ever were in quarantine
	QuarantinedBytes stats.Counter // bytes that are there now

	mu          sync.Mutex // outside Links
	quarantined []quarantinedBlock
	some        atomic.Bool // quarantined is not empty
}

// quarantinedBlock is memory in quarantine.
type quarantinedBlock struct {
	inside []Visit
	bytes  int
	free   func()
}

// Ongoing returns those of the visits that are in progress, in the memory of list.
func (o *Owner) Ongoing(list []Visit) []Visit {
	if len(list) == 0 {
		return nil
	}
	o.Links.Lock()
	defer o.Links.Unlock()
	return slices.DeleteFunc(list, Visit.Over)
}

// Await waits until the visits have ended, for at most limit, and returns those that have not, in the
// memory of list.
func (o *Owner) Await(list []Visit, limit time.Duration) []Visit {
	timelimit.Await(limit, func() bool {
		list = o.Ongoing(list)
		return len(list) == 0
	})
	return list
}

// Free calls free when the visits have ended: at once if there are none, otherwise in Reclaim. n is the number of
// bytes in quarantine until then. free is called without a lock of the Owner.
func (o *Owner) Free(inside []Visit, n int, free func()) {
	if len(inside) == 0 {
		free()
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quarantined = append(o.quarantined, quarantinedBlock{inside, n, free})
	o.some.Store(true)
	o.Quarantined.Inc()
	o.QuarantinedBytes.Add(uint64(n))
}

// Reclaim frees the memory in quarantine whose visits have ended. Call it before an allocation and when a peer is gone.
func (o *Owner) Reclaim() {
	if !o.some.Load() {
		return
	}
	for _, h := range o.removeUnused() {
		h.free()
	}
}

// removeUnused removes the blocks without visits from quarantine.
func (o *Owner) removeUnused() (list []quarantinedBlock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.quarantined = slices.DeleteFunc(o.quarantined, func(h quarantinedBlock) bool {
		if len(o.Ongoing(slices.Clone(h.inside))) > 0 {
			return false
		}
		list = append(list, h)
		o.QuarantinedBytes.Add(-uint64(h.bytes))
		return true
	})
	o.some.Store(len(o.quarantined) > 0)
	return list
}

// Inside returns the visits to memory in quarantine.
func (o *Owner) Inside() (all []Visit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.quarantined {
		all = append(all, h.inside...)
	}
	return all
}

// InUse is the error for memory with visits in progress.
func InUse(list []Visit) error { return &ucs.InUseError{PIDs: PIDs(list)} }

// PIDs returns the processes that visit, in order, as far as they are visible in this PID namespace.
func PIDs(list []Visit) (pids []int) {
	for _, v := range list {
		if pid := v.peer.PID(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
