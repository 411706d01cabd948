//go:build !race

package ucttest

// raceEnabled reports whether the race detector is on, which changes allocation counts.
const raceEnabled = false
