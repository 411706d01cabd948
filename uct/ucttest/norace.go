//go:build !race

package ucttest

// raceEnabled: allocation counts mean nothing under the race detector.
const raceEnabled = false
