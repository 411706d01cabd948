package ucttest_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
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
	ucttest.EndTwice:         {"put/sizes", "order/variants"},
	ucttest.LoseCancel:       {"close/in-flight", "reenter/completion"},
	ucttest.LoseNested:       {"reenter/completion"},
	ucttest.FlushEarly:       {"flush/put", "put/sizes"},
	ucttest.FenceNothing:     {"fence/matrix", "fence/message"},
	ucttest.FenceLong:        {"fence/matrix"},
	ucttest.IgnoreKey:        {"fault/key", "fault/stale-key"},
	ucttest.HideFault:        {"fault/bounds", "notify/failed"},
	ucttest.SilentFailure:    {"fault/bounds", "fault/rights", "peer/killed", "peer/idle"},
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
	ucttest.KeepMem:          {"revoke/registered", "revoke/allocated", "peer/revoke", "fault/stale-key"},
	ucttest.ForgetMem:        {"revoke/iface"},
	ucttest.KeepLocal:        {"revoke/local"},
	ucttest.Allocate:         {"cost/allocations"},
	ucttest.SpawnGoroutine:   {"cost/goroutines"},
	ucttest.LieClass:         {"attr/classes"},
	ucttest.LieCost:          {"attr/costs"},
	ucttest.ReleaseAll:       {"key/release"},
	ucttest.CompleteEarly:    {"put/sizes", "put/many"},
	ucttest.KeepCopied:       {"get/sizes"},
	ucttest.BlindCheck:       {"peer/check"},
	ucttest.LoseCheck:        {"check/alive", "check/device"},
	ucttest.LoseRecall:       {"queue/recall"},
	ucttest.KeepQueue:        {"queue/stop"},
	ucttest.ShortLength:      {"queue/sizes"},
	ucttest.NotifyEarly:      {"notify/sizes"},
	ucttest.NotifyTwice:      {"notify/sizes", "notify/unhandled"},
	ucttest.LieGuarded:       {"reenter/progress"},
	ucttest.LieMapped:        {"get/mapped"},
	ucttest.LieLimit:         {"limit/put"},
}

func TestBroken_EachKindIsCaught(t *testing.T) {
	for _, k := range ucttest.Kinds() {
		t.Run(k.String(), func(t *testing.T) {
			checks := caughtBy[k]
			require.NotEmpty(t, checks, "no check is named for this kind")
			if testenv.RaceEnabled && (k == ucttest.KeepMem || k == ucttest.ForgetMem) {
				t.Skip("the race detector notices first")
			}
			h := memHarness(func(c *memtp.Config) {
				c.ConnectEP = slices.Contains(caughtBy[k], "notify/failed") || k == ucttest.NotifyEarly || k == ucttest.NotifyTwice
			})
			h.Budget = 1 << 12
			h.EventTimeout = 50 * time.Millisecond
			for _, v := range ucttest.Results(ucttest.Broken(h, k), checks...) {
				if v.Skipped && strings.Contains(v.String(), "race detector") {
					t.Skip("allocations are not counted under the race detector")
				}
				assert.True(t, v.Failed, "not noticed: %v", v)
				assert.False(t, v.Skipped, v.Check)
				assert.Equal(t, 1, strings.Count(v.String(), "rule: "+v.Rule), "its rule, once")
			}
		})
	}
}

// TestResults_OfTheReference: checks that pass; TestReference has all of them.
func TestResults_OfTheReference(t *testing.T) {
	names := []string{"attr/classes", "am/sizes", "put/sizes"}
	for i, v := range ucttest.Results(memHarness(nil), names...) {
		assert.Equal(t, names[i], v.Check)
		assert.False(t, v.Failed || v.Skipped, "%v", v)
		assert.NotEmpty(t, v.Rule)
	}
}

// standing is a transport whose Progress does not return while the gate is shut.
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

// TestResults_AHangFailsAlone: a check that does not end fails with its rule and the
// place where it stands, and the others have their results; after a few the suite
// gives up.
func TestResults_AHangFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := memHarness(func(c *memtp.Config) { c.ConnectEP = true })
		h.OpenMD = standing(h.OpenMD, gate)
		all := ucttest.Results(h, "attr/classes", "attr/sane", "attr/params", "am/sizes", "am/iov", "md/close-in-use")
		close(gate)           // those that hang go on, and clean up,
		time.Sleep(time.Hour) // in time of the bubble, in which they pause
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

// TestResults_NothingOpens: what makes every check fail is said once, and all checks are there,
// each with its rule.
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
