package ucttest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ucttest"
	"github.com/gucx/gucx/uct/ucttest/memtp"
)

// caughtBy says which checks must fail on each broken transport.
var caughtBy = map[ucttest.Kind][]string{
	ucttest.Drop:             {"am/both-ways", "order/endpoints", "pending/fifo"},
	ucttest.Duplicate:        {"am/both-ways", "order/endpoints"},
	ucttest.Reorder:          {"am/both-ways", "order/endpoints"},
	ucttest.Corrupt:          {"am/sizes", "order/variants"},
	ucttest.KeepBuffer:       {"am/sizes"},
	ucttest.Truncate:         {"am/too-long"},
	ucttest.WrongID:          {"am/ids"},
	ucttest.LieClaimed:       {"attr/variants", "put/sizes"},
	ucttest.LieUnclaimed:     {"attr/variants"},
	ucttest.LoseCompletion:   {"am/post-in-completion", "put/many"},
	ucttest.DoubleCompletion: {"put/many", "order/variants"},
	ucttest.LoseCancel:       {"close/in-flight"},
	ucttest.FlushEarly:       {"flush/put", "put/sizes"},
	ucttest.FenceNothing:     {"fence/put-am", "fence/put-atomic"},
	ucttest.IgnoreKey:        {"fault/key", "fault/stale-key"},
	ucttest.HideFault:        {"fault/bounds"},
	ucttest.SilentFailure:    {"fault/bounds", "fault/rights", "peer/killed"},
	ucttest.RepeatFailure:    {"fault/bounds", "peer/killed"},
	ucttest.RoundAtomics:     {"fault/misaligned"},
	ucttest.TearAtomics:      {"atomic/senders"},
	ucttest.LeakDescriptor:   {"desc/kept"},
	ucttest.UnfairPending:    {"pending/fair"},
	ucttest.PendingLIFO:      {"pending/fifo", "pending/refused-stays-first"},
	ucttest.PendingTwice:     {"pending/fifo"},
	ucttest.Overtake:         {"pending/refused-stays-first"},
	ucttest.LoseWakeup:       {"wake/receive", "wake/race"},
	ucttest.TrustAddress:     {"addr/garbage"},
	ucttest.TrustKey:         {"key/garbage"},
	ucttest.CloseInUse:       {"md/close-in-use"},
	ucttest.Allocate:         {"cost/allocations"},
	ucttest.SpawnGoroutine:   {"cost/goroutines"},
}

func TestBroken_EachKindIsCaught(t *testing.T) {
	for _, k := range ucttest.Kinds() {
		t.Run(k.String(), func(t *testing.T) {
			checks := caughtBy[k]
			require.NotEmpty(t, checks, "no check is named for this kind")
			h := memHarness(nil)
			h.Budget = 1 << 14
			h.EventTimeout = 200 * time.Millisecond
			for _, v := range ucttest.Verdicts(ucttest.Broken(h, k), checks...) {
				if v.Skipped && strings.Contains(strings.Join(v.Log, "\n"), "race detector") {
					t.Skip("allocations are not counted under the race detector")
				}
				assert.True(t, v.Failed, "%s did not notice; log: %q", v.Check, v.Log)
				assert.False(t, v.Skipped, v.Check)
				assert.Contains(t, strings.Join(v.Log, "\n"), "rule: "+v.Rule)
			}
		})
	}
}

func TestVerdicts_AllOfTheReferencePass(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range ucttest.Verdicts(memHarness(nil)) {
		assert.False(t, v.Failed, "%s: %q", v.Check, v.Log)
		assert.NotEmpty(t, v.Rule)
		assert.False(t, seen[v.Check], "two checks are named %s", v.Check)
		seen[v.Check] = true
	}
	for k, checks := range caughtBy {
		for _, c := range checks {
			assert.True(t, seen[c], "%v: there is no check %s", k, c)
		}
	}
}

// TestWrappers_KeepTheContract shows that wrapping by itself breaks nothing.
func TestWrappers_KeepTheContract(t *testing.T) {
	full := memHarness(nil)
	lines := 0
	for _, tc := range []struct {
		name string
		open func(ucttest.Harness) ucttest.Harness
	}{
		{"delay", func(h ucttest.Harness) ucttest.Harness { h.OpenMD = ucttest.Delay(h.OpenMD, 5); return h }},
		{"trace", func(h ucttest.Harness) ucttest.Harness {
			h.OpenMD = ucttest.Trace(h.OpenMD, func(string) { lines++ })
			return h
		}},
	} {
		for _, shape := range []struct {
			name string
			h    ucttest.Harness
		}{
			{"full", full},
			{"ep", memHarness(func(c *memtp.Config) { c.ConnectEP = true })},
			{"am only", memHarness(func(c *memtp.Config) { c.AMOnly = true })},
		} {
			t.Run(tc.name+"/"+shape.name, func(t *testing.T) {
				for _, v := range ucttest.Verdicts(tc.open(shape.h),
					"attr/classes", "attr/variants", "am/sizes", "am/both-ways", "order/variants", "put/sizes",
					"get/sizes", "atomic/operations", "fault/bounds", "pending/fair", "flush/put", "close/in-flight", "desc/kept") {
					assert.False(t, v.Failed, "%s: %q", v.Check, v.Log)
				}
			})
		}
	}
	assert.Positive(t, lines)
}

func TestKind_String(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range ucttest.Kinds() {
		assert.False(t, seen[k.String()], k.String())
		seen[k.String()] = true
	}
	assert.Equal(t, "kind 200", ucttest.Kind(200).String())
}

func FuzzAddress(f *testing.F) { ucttest.FuzzAddress(f, memHarness(nil)) }

func FuzzRKey(f *testing.F) { ucttest.FuzzRKey(f, memHarness(nil)) }
