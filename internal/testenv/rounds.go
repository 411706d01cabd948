package testenv

import (
	"os"
	"testing"
)

// soakEnv asks for the long form of tests that repeat what only chance shows, and for
// sweeps: make soak.
const soakEnv = "GUCX_TEST_SOAK"

// sweepEnv asks for sweeps over much that is alike: make sweep.
const sweepEnv = "GUCX_TEST_SWEEP"

// Soak says whether the long form of tests is asked for, by GUCX_TEST_SOAK=1.
func Soak() bool { return os.Getenv(soakEnv) == "1" }

// Sweep says whether sweeps are asked for, by GUCX_TEST_SWEEP=1 or with the soak.
func Sweep() bool { return os.Getenv(sweepEnv) == "1" || Soak() }

// shortShare is the part of the ordinary rounds that -short leaves.
const shortShare = 5

// Rounds is how often a test repeats what only chance shows: few times in an ordinary
// run, which has a machine of unknown speed; a fifth of that with -short; many times
// with GUCX_TEST_SOAK=1.
func Rounds(few, many int) int {
	switch {
	case Soak():
		return many
	case testing.Short():
		return max(few/shortShare, 1)
	}
	return few
}
