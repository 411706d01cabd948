package sm

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/memfd"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Allocated memory that was closed with peers inside that do not get on, as they are stopped or starved
// of a processor, is in quarantine. A peer is in one region at a time, so there is at most one for each
// link, and at most half of the arena.

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
	md.owner.Reclaim()
	held := int(md.owner.QuarantinedBytes.Load())
	if held > len(md.arenaSeg.Bytes())/2 {
		return 0, fmt.Errorf("%w: %s", uct.ErrNoMemory, md.quarantined(held))
	}
	off, err = md.arena.Alloc(n, md.touches())
	if !errors.Is(err, memfd.ErrFull) {
		return off, err
	}
	if held > 0 {
		err = fmt.Errorf("%w, %s", err, md.quarantined(held))
	}
	return 0, fmt.Errorf("%w: %w", uct.ErrNoMemory, err)
}

// awaitQuarantine waits for the visits that keep memory in quarantine, and reports
// whether there is less reason for it than before.
func (md *MD) awaitQuarantine() bool {
	inside := md.owner.Inside()
	return len(md.owner.Await(inside, ucs.RevokeLimit)) < len(inside)
}

// quarantined says why n bytes are in quarantine.
func (md *MD) quarantined(n int) string {
	return fmt.Sprintf("%d bytes of closed memory are in use by processes %v", n, guard.PIDs(md.owner.Inside()))
}
