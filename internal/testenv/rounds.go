package testenv

import (
	"os"
	"testing"
)

// soakEnv selects the long form of tests that repeat races, and sweeps: make soak.
const soakEnv = "GUCX_TEST_SOAK"

// sweepEnv selects sweeps over similar cases: make sweep.
const sweepEnv = "GUCX_TEST_SWEEP"

// Soak reports whether GUCX_TEST_SOAK=1 selects the long form of tests.
func Soak() bool { return os.Getenv(soakEnv) == "1" }

// Sweep reports whether GUCX_TEST_SWEEP=1, or the soak, selects sweeps.
func Sweep() bool { return os.Getenv(sweepEnv) == "1" || Soak() }

// UnlessSweep returns the names of checks that a suite leaves out because another one over the same transport has them; nothing if
// Sweep.
func UnlessSweep(checks ...string) []string {
	if Sweep() {
		return nil
	}
	return checks
}

// shortShare is the divisor of the ordinary rounds with -short.
const shortShare = 5

// Rounds returns the number of repetitions of a test of a race: few in an ordinary run, because the speed of the
// machine is unknown; a fifth of that with -short; many with GUCX_TEST_SOAK=1.
func Rounds(few, many int) int {
	switch {
	case Soak():
		return many
	case testing.Short():
		return max(few/shortShare, 1)
	}
	return few
}
