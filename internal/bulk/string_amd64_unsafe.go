//go:build amd64 && !race && !purego

package bulk

import "unsafe"

// Lengths for which REP MOVSB beats the copy of the Go runtime, measured between
// two cores of one L3: 1.5 to 1.9 times faster from 8 KiB to 64 KiB, equal at
// 1 MiB, slower beyond; at 4 KiB faster too, and slower below, between two cores of
// different L3s (experiment 0140 in docs/perf). A copy of 1 MiB takes about 15 us,
// which is how long a stop of the world may wait for it.
const (
	stringMin = 4 << 10
	stringMax = 1 << 20
)

// copyString copies n bytes by REP MOVSB.
//
//go:noescape
func copyString(dst, src unsafe.Pointer, n int)
