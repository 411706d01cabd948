package ucttest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
	"github.com/gucx/gucx/uct/ucttest/internal/broken"
	"github.com/gucx/gucx/uct/wrap"
)

// caughtBy lists the checks that must fail for each fault.
var caughtBy = map[broken.Fault][]string{
	broken.Drop:             {"am/both-ways", "order/endpoints", "pending/fifo"},
	broken.Duplicate:        {"am/both-ways", "order/endpoints"},
	broken.Reorder:          {"am/both-ways", "order/endpoints"},
	broken.Corrupt:          {"am/sizes", "order/variants"},
	broken.KeepBuffer:       {"am/sizes"},
	broken.Truncate:         {"am/too-long"},
	broken.WrongID:          {"am/ids"},
	broken.LieClaimed:       {"attr/variants", "put/sizes"},
	broken.LieUnclaimed:     {"attr/variants"},
	broken.LoseCompletion:   {"am/post-in-completion", "put/many"},
	broken.DoubleCompletion: {"put/many", "order/variants"},
	broken.CompleteTwice:    {"put/sizes", "order/variants"},
	broken.LoseCancel:       {"close/in-flight", "reenter/completion"},
	broken.LoseNested:       {"reenter/completion"},
	broken.FlushEarly:       {"flush/put", "put/sizes"},
	broken.FenceNothing:     {"fence/matrix", "fence/message"},
	broken.FenceLong:        {"fence/matrix"},
	broken.IgnoreKey:        {"fault/key", "fault/stale-key"},
	broken.HideFault:        {"fault/bounds", "notify/failed"},
	broken.SilentFailure:    {"fault/bounds", "fault/rights", "peer/killed", "peer/idle"},
	broken.RepeatFailure:    {"fault/bounds", "peer/killed"},
	broken.RoundAtomics:     {"fault/misaligned"},
	broken.TearAtomics:      {"atomic/senders"},
	broken.LeakDescriptor:   {"desc/kept"},
	broken.UnfairPending:    {"pending/fair"},
	broken.PendingLIFO:      {"pending/fifo", "pending/refused-stays-first"},
	broken.PendingTwice:     {"pending/fifo"},
	broken.Overtake:         {"pending/refused-stays-first"},
	broken.LoseWakeup:       {"wake/receive", "wake/race"},
	broken.LieArmed:         {"wake/armed"},
	broken.TrustAddress:     {"addr/garbage"},
	broken.TrustKey:         {"key/garbage"},
	broken.CloseInUse:       {"md/close-in-use"},
	broken.KeepMem:          {"revoke/registered", "revoke/allocated", "peer/revoke", "fault/stale-key"},
	broken.ForgetMem:        {"revoke/iface"},
	broken.KeepLocal:        {"revoke/local"},
	broken.Allocate:         {"cost/allocations"},
	broken.SpawnGoroutine:   {"cost/goroutines"},
	broken.LieClass:         {"attr/classes"},
	broken.LieCost:          {"attr/costs"},
	broken.ReleaseAll:       {"key/release"},
	broken.CompleteEarly:    {"put/sizes", "put/many"},
	broken.KeepCopied:       {"get/sizes"},
	broken.BlindCheck:       {"peer/check"},
	broken.LoseCheck:        {"check/alive", "check/device"},
	broken.LoseRecall:       {"queue/recall"},
	broken.KeepQueue:        {"queue/stop"},
	broken.ShortLength:      {"queue/sizes"},
	broken.NotifyEarly:      {"notify/sizes"},
	broken.NotifyTwice:      {"notify/sizes", "notify/unhandled"},
	broken.LieGuarded:       {"reenter/progress"},
	broken.LieMapped:        {"get/mapped"},
	broken.MapBeyond:        {"map/refused"},
	broken.MapCopy:          {"map/memory"},
	broken.LieLimit:         {"limit/put"},
}

// breaking returns h with a transport that has fault k.
func breaking(h ucttest.Harness, k broken.Fault) ucttest.Harness {
	open, layer := h.OpenMD, broken.Layer(k)
	h.OpenMD = func() (uct.MD, error) {
		md, err := open()
		if err != nil {
			return nil, err
		}
		return wrap.Domain(md, layer), nil
	}
	return h
}

func TestBroken_SuiteReportsEachFault(t *testing.T) {
	for _, k := range broken.Faults() {
		t.Run(k.String(), func(t *testing.T) {
			checks := caughtBy[k]
			require.NotEmpty(t, checks, "no check is listed for this fault")
			if testenv.RaceEnabled && (k == broken.KeepMem || k == broken.ForgetMem) {
				t.Skip("the race detector reports the fault first")
			}
			h := memHarness(func(c *memtp.Config) {
				c.ConnectEP = slices.Contains(caughtBy[k], "notify/failed") || k == broken.NotifyEarly || k == broken.NotifyTwice
			})
			h.Budget = 1 << 12
			h.EventTimeout = 50 * time.Millisecond
			for _, v := range ucttest.Results(breaking(h, k), checks...) {
				if v.Skipped && strings.Contains(v.String(), "race detector") {
					t.Skip("allocations are not counted under the race detector")
				}
				assert.True(t, v.Failed, "the check did not fail: %v", v)
				assert.False(t, v.Skipped, v.Check)
				assert.Equal(t, 1, strings.Count(v.String(), "rule: "+v.Rule), "the message contains the rule once")
			}
		})
	}
}

// TestResults_OfTheReference checks the results of three checks that pass. TestReference runs all checks.
func TestResults_OfTheReference(t *testing.T) {
	names := []string{"attr/classes", "am/sizes", "put/sizes"}
	for i, v := range ucttest.Results(memHarness(nil), names...) {
		assert.Equal(t, names[i], v.Check)
		assert.False(t, v.Failed || v.Skipped, "%v", v)
		assert.NotEmpty(t, v.Rule)
	}
}

// standing returns an open function of a transport whose Progress blocks until gate is closed.
func standing(open func() (uct.MD, error), gate <-chan struct{}) func() (uct.MD, error) {
	return func() (uct.MD, error) {
		md, err := open()
		return &standingMD{md.(*memtp.MD), gate}, err
	}
}

type standingMD struct {
	*memtp.MD
	gate <-chan struct{}
}

func (m *standingMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i, err := m.MD.OpenIface(p)
	if err != nil {
		return nil, err
	}
	return &standingIface{i.(*memtp.Iface), m}, nil
}

type standingIface struct {
	*memtp.Iface
	m *standingMD
}

func (i *standingIface) Progress() int {
	<-i.m.gate
	return i.Iface.Progress()
}

// TestResults_AHangFailsAlone checks that a check that does not return fails with its rule and its stack, that the
// others have results, and that the suite skips the remaining checks after maxHung of them.
func TestResults_AHangFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := memHarness(func(c *memtp.Config) { c.ConnectEP = true })
		h.OpenMD = standing(h.OpenMD, gate)
		all := ucttest.Results(h, "attr/classes", "attr/sane", "attr/params", "am/sizes", "am/iov", "md/close-in-use")
		close(gate)           // the checks that hang continue and clean up
		time.Sleep(time.Hour) // virtual time for their pauses
		hung := 0
		for _, v := range all {
			if v.Hung {
				hung++
				assert.True(t, v.Failed)
				assert.Contains(t, v.String(), "rule: "+v.Rule)
				assert.Contains(t, v.Fault, "standingIface", "where it hangs")
			}
		}
		assert.Equal(t, 3, hung)
		last := all[len(all)-1]
		assert.True(t, last.Skipped && !last.Failed, "%v", last)
		assert.Contains(t, last.String(), "3 checks hang")
	})
}

// TestResults_NothingOpens checks that if OpenIface fails, only the check "open" fails, and that all other checks are
// in the results, skipped, with their rules.
func TestResults_NothingOpens(t *testing.T) {
	h := memHarness(nil)
	h.Device = "nosuch"
	failed, seen := 0, map[string]bool{}
	for _, v := range ucttest.Results(h) {
		assert.NotEmpty(t, v.Rule)
		assert.False(t, seen[v.Check], "two checks are named %s", v.Check)
		seen[v.Check] = true
		if v.Failed {
			failed++
			assert.Equal(t, "open", v.Check)
		} else {
			assert.True(t, v.Skipped, v.Check)
		}
	}
	assert.Equal(t, 1, failed)
	for k, checks := range caughtBy {
		for _, c := range checks {
			assert.True(t, seen[c], "%v: there is no check %s", k, c)
		}
	}
}

func TestFault_String(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range broken.Faults() {
		assert.NotEmpty(t, k.String(), "fault %d", int(k))
		assert.False(t, seen[k.String()], k.String())
		seen[k.String()] = true
	}
	assert.Equal(t, "lie-limit", broken.LieLimit.String(), "the last one: names are in the order of the constants")
	assert.Equal(t, "fault 200", broken.Fault(200).String())
}

func FuzzAddress(f *testing.F) { ucttest.FuzzAddress(f, memHarness(nil)) }

func FuzzRKey(f *testing.F) { ucttest.FuzzRKey(f, memHarness(nil)) }
