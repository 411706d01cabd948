//go:build amd64 && !race && !purego

package bulk

import "unsafe"

// Lengths in bytes for which REP MOVSB is faster than the copy of the Go runtime
// (experiment 0140 in docs/perf). Between two cores with a common L3 it is 1.5 to 1.9
// times as fast from 8 KiB to 64 KiB, equally fast at 1 MiB, and slower above. Between
// two cores with different L3s it is also faster at 4 KiB, and slower below. A copy of
// 1 MiB takes about 15 us, by which it can delay a stop of the world.
const (
	stringMin = 4 << 10
	stringMax = 1 << 20
)

// copyString copies n bytes by REP MOVSB.
//
//go:noescape
func copyString(dst, src unsafe.Pointer, n int)
