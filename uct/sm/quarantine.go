package sm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/stats"
	"github.com/gucx/gucx/uct"
)

// quarantine has allocated memory that was closed with peers inside that do not get on,
// for they are stopped or starved of a processor. It goes back to the arena when they
// have left or are dead. A peer is in one region at a time, so there is at most one for
// each link, and at most half of the arena. MD.mu is held for everything but counters.
type quarantine struct {
	held  []quarantined
	bytes int

	regions  stats.Counter // ever
	bytesNow stats.Counter // the same as bytes, for statistics
}

// quarantined is a region in quarantine.
type quarantined struct {
	mem    *Mem
	inside []visit
}

func (q *quarantine) add(m *Mem, inside []visit) {
	q.held = append(q.held, quarantined{m, inside})
	q.bytes += len(m.buf)
	q.regions.Inc()
	q.bytesNow.Add(uint64(len(m.buf)))
}

// emptyQuarantine reclaims what nobody is inside of any more. md.mu is held.
func (md *MD) emptyQuarantine() {
	q := &md.quarantine
	q.held = slices.DeleteFunc(q.held, func(d quarantined) bool {
		if slices.ContainsFunc(d.inside, func(v visit) bool { return !md.isOver(v) }) {
			return false
		}
		q.bytes -= len(d.mem.buf)
		q.bytesNow.Add(-uint64(len(d.mem.buf)))
		md.reclaim(d.mem)
		return true
	})
}

// place finds n bytes in the arena. When that fails and memory is in quarantine, it waits
// for that, for ucs.RevokeLimit at most.
func (md *MD) place(n int) (off int, err error) {
	off, err = md.tryPlace(n)
	if errors.Is(err, uct.ErrNoMemory) && md.awaitQuarantine() {
		off, err = md.tryPlace(n)
	}
	return off, err
}

func (md *MD) tryPlace(n int) (off int, err error) {
	md.mu.Lock()
	md.emptyQuarantine()
	held, why := md.quarantine.bytes, md.quarantine.String()
	md.mu.Unlock()
	if held > len(md.arenaSeg.Bytes())/2 {
		return 0, fmt.Errorf("%w: %s", uct.ErrNoMemory, why)
	}
	off, err = md.arena.Alloc(n, md.touches())
	if !errors.Is(err, memfd.ErrFull) {
		return off, err
	}
	if held > 0 {
		err = fmt.Errorf("%w, %s", err, why)
	}
	return 0, fmt.Errorf("%w: %w", uct.ErrNoMemory, err)
}

// awaitQuarantine waits for the visits that keep memory in quarantine, and reports
// whether there is less reason for it than before.
func (md *MD) awaitQuarantine() bool {
	md.mu.Lock()
	inside := md.quarantine.visits()
	md.mu.Unlock()
	return len(md.await(slices.Clone(inside), ucs.RevokeLimit)) < len(inside)
}

// visits are those that keep memory in quarantine.
func (q *quarantine) visits() (all []visit) {
	for _, d := range q.held {
		all = append(all, d.inside...)
	}
	return all
}

// String says what is in quarantine and why.
func (q *quarantine) String() string {
	return fmt.Sprintf("%d bytes of closed memory are in use by processes %v", q.bytes, pidsOf(q.visits()))
}
