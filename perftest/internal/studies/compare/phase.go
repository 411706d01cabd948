package compare

import "slices"

// Phase is where the host has put the two processors during a pair of runs.
type Phase string

// Phases.
const (
	// Near processors hand a cache line over through a cache that they share.
	Near Phase = "near"
	// Far ones do not share one.
	Far Phase = "far"
	// Moved says that they were moved between the probes of the pair, or that
	// something else kept one of them.
	Moved Phase = "moved"
	// Alone is the phase where one processor takes part.
	Alone Phase = "one"
)

// phases is the order of rows.
var phases = []Phase{Near, Far, Alone, Moved}

const (
	// defaultNear is the longest hand-over of near processors in nanoseconds. Those
	// that share a third-level cache were seen at 48 to 60 ns and others from 165 ns
	// on (AMD EPYC, family 26); near ones of an Intel Xeon (model 143) at 55 to 95 ns, and
	// at 120 to 140 ns in a phase in which everything took twice as long.
	defaultNear = 150

	// agreement is by which factor the probes of a pair may differ. Those of one
	// phase differ by less than a tenth, those of two phases by 2.7 or more.
	agreement = 1.5
)

// phaseOf tells the phase of a pair by its own probes.
func phaseOf(probes []float64, near float64) Phase {
	if len(probes) == 0 {
		return Alone
	}
	longest := slices.Max(probes)
	switch {
	case longest > agreement*slices.Min(probes):
		return Moved
	case longest <= near:
		return Near
	}
	return Far
}
