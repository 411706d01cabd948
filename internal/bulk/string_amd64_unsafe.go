//go:build amd64 && !race && !purego

package bulk

import (
	"unsafe"

	"github.com/gucx/gucx/internal/cpuid"
)

// stringMax is the maximum length in bytes of a copy by REP MOVSB. Longer ones are slower than those of the Go runtime, and a
// copy of 1 MiB takes 15 to 35 us, by which it can delay a stop of the world.
const stringMax = 1 << 20

// stringMin is the minimum length in bytes of a copy by REP MOVSB on this CPU.
var stringMin = stringMinOf(cpuid.AMDFamily())

// zen5 is the family of AMD's Zen 5.
const zen5 = 0x1a

// stringMinOf returns stringMin for a family of AMD; 0 is a CPU of another vendor.
//
// On Zen 5, REP MOVSB between two cores with a common L3 is 1.5 to 1.9 times as fast as the copy of the Go runtime from 8 to
// 64 KiB; with different L3s it is also faster at 4 KiB, and slower below (experiments 0095 and 0140 in docs/perf).
// On Zen 3 it is slower up to 64 KiB, by a half at 4 and 8 KiB, and equal up to 512 KiB. At 1 MiB, where the copy of the runtime uses
// stores that bypass the caches, it takes two thirds of the time (experiment 0154). Other CPUs were not measured.
func stringMinOf(family uint32) int {
	if family == zen5 {
		return 4 << 10
	}
	return stringMax
}

// copyString copies n bytes by REP MOVSB.
//
//go:noescape
func copyString(dst, src unsafe.Pointer, n int)
