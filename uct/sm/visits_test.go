package sm

import "github.com/gucx/gucx/internal/guard"

// endVisit ends the visit that enter began.
func (l *outLink) endVisit() {
	ended, _ := l.guard.Visits()
	l.guard.Leave(ended * (guard.RegionMask + 1))
}

// visits returns the number of visits so far.
func (l *outLink) visits() uint64 {
	ended, region := l.guard.Visits()
	if region != 0 {
		ended++
	}
	return ended
}
