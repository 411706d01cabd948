package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// A prediction is exactly the same in each run.
func TestModel_SameOutput(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	for _, args := range []string{
		"endpoints -q --model connectx4 -n 64 -t 4 -o csv",
		"msgrate -q --model connectx4 -n 128 -t 4 --ways 1,4 --share cq,qp,buf --features each -o csv",
		"dgemm -q --model connectx4 -N 16 -t 4 -o csv",
		"stencil -q --model connectx4 --rows 8 --cols 16 --hybrid 4.1,1.4 -o csv",
	} {
		code, first, errs := perftest(t, strings.Fields(args)...)
		require.Equal(t, exitOK, code, errs)
		code, second, errs := perftest(t, strings.Fields(args)...)
		require.Equal(t, exitOK, code, errs)
		assert.Equal(t, first, second, args)
	}
}

// Runs with the same seed have the same results, and runs with another seed other ones; also with jitter.
func TestModel_Seed(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	run := func(args string) string {
		code, out, errs := perftest(t, strings.Fields("dgemm -q -N 16 -t 4 --categories Static -o csv --model "+args)...)
		require.Equal(t, exitOK, code, errs)
		return out
	}
	for _, model := range []string{"connectx4", "connectx4,Jitter=50"} {
		first := run(model + " --seed 1")
		assert.Equal(t, first, run(model+" --seed 1"), model)
		assert.NotEqual(t, first, run(model+" --seed 1000"), model)
	}
	assert.NotEqual(t, run("connectx4"), run("connectx4,Jitter=50"))
	assert.NotContains(t, run("connectx4"), "spread", "one round has no spread")
	assert.Contains(t, run("connectx4 --rounds 2"), ",rounds,spread,puts_spread\n")
}

// In virtual time the command line also overrides the defaults.
func TestModel_Defaults(t *testing.T) {
	for args, want := range map[string]string{
		"endpoints -q --model connectx4 -t 1 --categories Static":                  "3200 messages of 2 bytes a thread, depth 64, postlist 1, unsignaled 1; median of 1 rounds",
		"dgemm -q --model connectx4 -N 8 -t 1 --categories Static":                 "A*B=C of 8 x 8 elements in tiles of 4 x 4; median of 1 rounds",
		"stencil -q --model connectx4 --cols 8 --hybrid 1.1 --categories Static":   "5-point stencil of 64 x 8 points, 1 in a message, 5 iterations; median of 1 rounds",
		"endpoints -q --model connectx4 -t 1 -n 64 --rounds 2 --categories Static": "64 messages of 2 bytes a thread, depth 64, postlist 1, unsignaled 1; median of 2 rounds",
	} {
		code, out, errs := perftest(t, strings.Fields(args)...)
		require.Equal(t, exitOK, code, errs)
		out = strings.Join(strings.Fields(out), " ") // lines are broken for the terminal
		assert.Contains(t, out, want)
		assert.Contains(t, out, "model connectx4, virtual time")
	}
}

func TestModel_Parameters(t *testing.T) {
	for args, want := range map[string]string{
		"connectx4,Speed=1":         "RegisterWrite",
		"connectx4,Rails=0":         "at least 1",
		"connectx4,Jitter=-1":       "negative cost",
		"connectx4,":                "",
		"connectx9,RegisterWrite=1": "connectx4",
	} {
		code, _, errs := perftest(t, "endpoints", "-q", "-n", "64", "-t", "1", "--model", args)
		if want == "" {
			assert.Equal(t, exitOK, code, args)
			continue
		}
		assert.Equal(t, exitUsage, code, args)
		assert.Contains(t, errs, want, args)
	}
}
