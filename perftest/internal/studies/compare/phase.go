package compare

import "slices"

// Phase is the placement of the two CPUs by the host during a pair of runs.
type Phase string

// Phases.
const (
	// Near CPUs share the cache through which a cache line moves.
	Near Phase = "near"
	// Far CPUs do not share a cache.
	Far Phase = "far"
	// Moved: the CPUs were moved between the probes of the pair, or other load occupied one of
	// them.
	Moved Phase = "moved"
	// Alone is the phase of runs that use one CPU.
	Alone Phase = "one"
)

// phases is the order of rows.
var phases = []Phase{Near, Far, Alone, Moved}

const (
	// defaultNear is the maximum time between near CPUs in nanoseconds. With a shared third-level
	// cache, 48 to 60 ns were measured, without one 165 ns and more (AMD EPYC, family 26); near
	// CPUs of an Intel Xeon (model 143) took 55 to 95 ns, and 120 to 140 ns in a phase in which
	// everything took twice as long.
	defaultNear = 150

	// agreement is the maximum ratio between the probes of a pair. Probes of one phase differ by
	// less than a tenth, those of two phases by a factor of 2.7 or more.
	agreement = 1.5
)

// phaseOf returns the phase of a pair, from its probes.
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
