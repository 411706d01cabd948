package tick

import "github.com/gucx/gucx/internal/cpuid"

// rdtsc reads the time-stamp counter after all earlier instructions.
//
//go:noescape
func rdtsc() uint64

var useTSC = invariantTSC() && kernelTrustsTSC()

// Now returns the counter when all earlier instructions have their results. Differences are meaningful, also
// between cores.
func Now() uint64 {
	if useTSC {
		return rdtsc()
	}
	return monotonic()
}

func source() string {
	if useTSC {
		return "tsc"
	}
	return "monotonic"
}

// invariantTSC reports CPUID.80000007H:EDX[8]: the counter runs at a constant
// rate in all power states (Intel SDM volume 3B, 19.17.1; AMD APM volume 3, E.4.8).
func invariantTSC() bool {
	const powerLeaf = 0x80000007
	if top, _, _, _ := cpuid.ID(0x80000000); top < powerLeaf {
		return false
	}
	_, _, _, edx := cpuid.ID(powerLeaf)
	return edx&(1<<8) != 0
}
