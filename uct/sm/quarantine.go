package sm

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Allocated memory that is closed during a visit of a peer that makes no progress, because it is stopped or has no
// CPU, is quarantined. A peer visits one region at a time, so at most one region for each
// link, and at most half of the arena, is in quarantine.

// place allocates n bytes in the arena. If that fails and memory is in quarantine, it waits
// for the quarantine, for at most ucs.RevokeLimit.
func (md *domain) place(n int) (off int, err error) {
	off, err = md.tryPlace(n)
	if errors.Is(err, uct.ErrNoMemory) && md.awaitQuarantine() {
		off, err = md.tryPlace(n)
	}
	return off, err
}

func (md *domain) tryPlace(n int) (off int, err error) {
	md.owner.Reclaim()
	held := int(md.owner.QuarantinedBytes.Load())
	if held > len(md.arenaSeg.Bytes())/2 {
		return 0, fmt.Errorf("%w: %s", uct.ErrNoMemory, md.quarantined(held))
	}
	off, err = md.arena.Alloc(n, md.populates())
	if !errors.Is(err, memfd.ErrFull) {
		return off, err
	}
	if held > 0 {
		err = fmt.Errorf("%w, %s", err, md.quarantined(held))
	}
	return 0, fmt.Errorf("%w: %w", uct.ErrNoMemory, err)
}

// awaitQuarantine waits for the visits for which memory is in quarantine, and reports
// whether some have ended.
func (md *domain) awaitQuarantine() bool {
	inside := md.owner.Inside()
	return len(md.owner.Await(inside, ucs.RevokeLimit)) < len(inside)
}

// quarantined returns the reason why n bytes are in quarantine.
func (md *domain) quarantined(n int) string {
	return fmt.Sprintf("%d bytes of closed memory are in use by processes %v", n, guard.PIDs(md.owner.Inside()))
}
