package compare

import (
	"context"
	"time"
)

// The probe decides what may be compared. A hand-over of a cache line takes 48 to 80
// ns where two processors share a third-level cache, 165 ns and more where they do
// not (docs/perf.md), so that anything in between separates the two.
const (
	defaultNearNS = 100
	nearLooks     = 20 // before a pair that is then dropped
	nearPause     = 50 * time.Millisecond
)

// prober measures the hand-over of a cache line between the two processors, in
// nanoseconds one way.
type prober func() (float64, error)

// awaitNear probes until the processors are near, at most nearLooks times, and
// returns the last value.
func awaitNear(ctx context.Context, probe prober, nearNS float64) (ns float64, err error) {
	t := time.NewTicker(nearPause)
	defer t.Stop()
	for range nearLooks {
		if ns, err = probe(); err != nil || ns <= nearNS {
			return ns, err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ns, context.Cause(ctx)
		}
	}
	return ns, nil
}
