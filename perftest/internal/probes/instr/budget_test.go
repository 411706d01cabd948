package instr

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/self"
	"github.com/gucx/gucx/uct/sm"
)

// usual is the number of repetitions that show the usual count of a case.
const usual = 3

// countBudget counts the cases of budgets, from the part stepped on, and all of them in one child, as opening the
// layers takes as long as many cases.
func countBudget(t *testing.T, reps int, stepped Part, plans ...Plan) *Measurement {
	t.Helper()
	testenv.SkipCheckptr(t, "the instructions of checkptr would be counted")
	testenv.SkipShort(t, "the same on any number of CPUs")
	m := countLayers(t, "shm", reps, cases(plans...), measurer{detail: ByFunction, stepped: stepped})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(tables(t, m))
		}
	})
	return m
}

// sorted returns the operations of a table, in the order in which they are counted.
func sorted[V any](table map[Op]V) []Op { return slices.Sorted(maps.Keys(table)) }

// Budgets of operations of 8 bytes, or of minZcopy bytes for zcopy, in instructions.
var (
	// rcOver is the number of instructions that uct/ib/rc may add to verbs.
	rcOver = map[Op]int{Put: 35, Get: 110, Add: 60, FAdd: 90, Flush: 120, PutZcopy: 80, GetZcopy: 80}
	// directOver is the number that rc_mlx5 may add to mlx5 queues that the caller writes.
	directOver = map[Op]int{Put: 20, Flush: 135}
	// ucpOver is the number that UCP may add to UCT over rc: the goals of get, fetch and flush, and the budgets
	// of zcopy puts and gets. Eight instructions of a put reject ranges outside of the region.
	ucpOver = map[Op]int{Put: 42, Get: 80, FAdd: 80, Flush: 150, PutZcopy: 126, GetZcopy: 132}
	// overSM are the budgets of one-sided operations on mapped memory over sm, with all layers and with uct
	// only: the count plus a few percent.
	overSM = map[Op]map[Part]int{Put: {UCT: 45, UCP: 82}, Get: {UCT: 46, UCP: 128}}
)

const (
	// budgetIdleUCP is the budget of an idle Worker.Progress, for each active iface. The worker of the rig has one,
	// rc; ud has no connection after the handshake.
	budgetIdleUCP = 28
	// budgetShared is the number that a SharedWorker adds to a put while no other goroutine uses it: a lock, an
	// unlock and two calls.
	budgetShared = 75
	resolveMost  = 300 // resolution of a key; a request with its queues would take more
	pollLeast    = 25  // a poll of an empty completion queue
)

// Lengths in bytes of puts and messages that rc_mlx5 writes inline into several basic blocks, and the part of the instructions of rc that it
// may need. A message is inline with its header, and lengths include it.
var inlineSizes = []int{64, 128, dv.MaxInline}

const inlineShare = 0.6

// rcInline is the length in bytes above which rc copies puts and messages.
const rcInline = 128

func TestBudget_OneSided(t *testing.T) {
	layers := []Part{Verbs, UCT, UCP}
	m := countBudget(t, usual, Verbs,
		Plan{Ops: []Op{Put, Get, Add, FAdd, Flush, Idle}, APIs: layers, Sizes: []int{8}, Switches: true},
		Plan{Ops: []Op{PutZcopy, GetZcopy}, APIs: layers, Sizes: []int{minZcopy}},
		Plan{Ops: []Op{Put, Flush}, APIs: []Part{AVerbs, UCT}, Sizes: []int{8}, Transports: []string{dv.RCName}},
		Plan{Ops: []Op{Put, AMShort, AMBcopy}, APIs: []Part{UCT}, Sizes: inlineSizes, Transports: []string{rc.Name, dv.RCName}},
		Plan{Ops: sorted(overSM), APIs: []Part{UCT, UCP}, Sizes: []int{8}, Transports: []string{sm.Name}})
	total := func(op Op, api Part, by string) int {
		return sampleOf(t, m, Case{Op: op, API: api, Size: op.sizes([]int{8, minZcopy})[0], Switch: by}).Total()
	}
	t.Run("rc", func(t *testing.T) {
		for op, most := range rcOver {
			assert.LessOrEqual(t, total(op, UCT, "")-total(op, Verbs, ""), most, op)
		}
	})
	t.Run("rc_mlx5", func(t *testing.T) { // rc_mlx5 writes the queue itself
		assert.LessOrEqual(t, 2*total(Put, UCT, dv.RCName), total(Put, UCT, ""))
		for _, size := range inlineSizes {
			by := func(op Op, transport string) float64 {
				return float64(sampleOf(t, m, Case{Op: op, API: UCT, Size: size, Switch: transport}).Total())
			}
			assert.LessOrEqual(t, by(Put, dv.RCName), inlineShare*by(Put, ""), "put of %d B", size)
			message := AMShort
			if size > rcInline {
				message = AMBcopy
			}
			assert.LessOrEqual(t, by(AMShort, dv.RCName), inlineShare*by(message, ""), "message of %d B", size)
		}
	})
	t.Run("averbs", func(t *testing.T) {
		for op, most := range directOver {
			over := total(op, UCT, dv.RCName) - total(op, AVerbs, dv.RCName)
			assert.Positive(t, over, op)
			assert.LessOrEqual(t, over, most, op)
		}
	})
	t.Run("sm", func(t *testing.T) {
		for op, budget := range overSM {
			for api, most := range budget {
				assert.LessOrEqual(t, total(op, api, sm.Name), most, "%s, %s", op, api)
			}
		}
	})
	t.Run("ucp", func(t *testing.T) {
		for op, most := range ucpOver {
			assert.LessOrEqual(t, total(op, UCP, "")-total(op, UCT, ""), most, op)
		}
		assert.LessOrEqual(t, total(Idle, UCP, ""), budgetIdleUCP)
	})
	t.Run("switches", func(t *testing.T) {
		more := func(op Op, by string) int { return total(op, UCP, by) - total(op, UCP, "") }
		assert.LessOrEqual(t, more(Put, switchShared), budgetShared)
		for _, op := range []Op{Put, Get, Add, FAdd} {
			assert.Positive(t, more(op, switchResolve), op)
			assert.Less(t, more(op, switchResolve), resolveMost, op)
		}
		assert.Greater(t, more(Idle, switchPollTx), pollLeast)
		assert.Greater(t, more(Flush, switchPollTx), pollLeast)
		assert.Greater(t, more(Idle, switchProgressAll), 2*pollLeast)
		assert.Greater(t, more(Flush, switchProgressAll), 2*pollLeast)
	})
}

// windowBudgets are the instructions of uct/ib/rc for one operation of a window, including its part of the
// flush. The budgets of single operations include those of verbs.
var windowBudgets = map[Op]int{PutWindow: 107, GetWindow: 110, FAddWindow: 120}

func TestBudget_Windows(t *testing.T) {
	m := countBudget(t, usual, UCT, Plan{Ops: sorted(windowBudgets), APIs: []Part{UCT}, Sizes: []int{minZcopy}})
	for op, most := range windowBudgets {
		c := Case{Op: op, API: UCT, Size: op.sizes([]int{minZcopy})[0]}
		assert.LessOrEqual(t, sampleOf(t, m, c).Profile.Part(UCT)/windowLen, most, op)
	}
}

// Budgets of messages, in instructions: the count plus a few percent.
var (
	// messageBudgets are the budgets of a message of 8 bytes, which are its header, without the device, by transport:
	// AMShort and AMBcopy of the sender, and progress of the receiver.
	messageBudgets = map[string]map[Op]int{
		rc.Name:   {AMShort: 440, AMBcopy: 570, AMShortRecv: 625},
		dv.RCName: {AMShort: 170, AMBcopy: 450, AMShortRecv: 440},
		ud.Name:   {AMShort: 1065, AMBcopy: 1040, AMShortRecv: 730},
		dv.UDName: {AMShort: 1060, AMBcopy: 1035, AMShortRecv: 630},
		sm.Name:   {AMShort: 74, AMBcopy: 228, AMShortRecv: 130},
		self.Name: {AMShort: 40, AMBcopy: 125, AMShortRecv: 64},
	}
	// messageOver is the number that SendActive adds to AMShort of 8 bytes over sm and self, by side.
	messageOver = map[Op]int{AMShort: 45, AMShortRecv: 45}
	// tagBudget is the number of ucp itself for a tagged message of 8 bytes over sm and self.
	tagBudget = map[Op]int{Tag: 43, TagPost: 56, TagRecv: 72, TagKept: 268}
	// slotBudget is the number for the sender of a tagged message of slotLen bytes, by transport.
	slotBudget = map[string]int{sm.Name: 168, self.Name: 136}
	// tagOver is the number that a tagged message of 8 bytes, sent and received, adds to AMShort over sm and self.
	tagOver = 116
	// rndvBudget is the number of ucp and sm for a rendezvous message with a get, from and to allocated memory: the
	// RTS, the get and the ATS, the completion of the send; without the copy of the data, which is one instruction only where
	// bulk.Copy uses REP MOVSB.
	rndvBudget = map[Op]int{Rndv: 845, RndvRecv: 1600, RndvDone: 516}
)

// copied returns the instructions of the Go runtime's copy, for any part.
func (p Profile) copied() (n int) {
	for at, count := range p {
		if at.Function == "runtime.memmove" {
			n += count
		}
	}
	return n
}

// slotLen is the length in bytes of a message that is longer than two words, and fits into a slot of sm and self.
const slotLen = 64

func TestBudget_Messages(t *testing.T) {
	over := func(ops []Op, size int, transports ...string) Plan {
		return Plan{Ops: ops, APIs: []Part{UCP}, Sizes: []int{size}, Transports: transports}
	}
	m := countBudget(t, usual, Verbs,
		Plan{Ops: []Op{AMShort, AMBcopy, AMShortRecv}, APIs: []Part{UCT}, Sizes: []int{8}},
		over(sorted(messageOver), 8, sm.Name, self.Name), over(sorted(tagBudget), 8, sm.Name, self.Name), over([]Op{Tag}, slotLen, sm.Name, self.Name),
		over(sorted(rndvBudget), minRndv, sm.Name))
	counted := func(op Op, api Part, by string) int {
		return sampleOf(t, m, Case{Op: op, API: api, Size: 8, Switch: by}).Total()
	}
	for _, by := range []string{sm.Name, self.Name} {
		below := counted(AMShort, UCT, by) + counted(AMShortRecv, UCT, by)
		assert.LessOrEqual(t, counted(Tag, UCP, by)+counted(TagRecv, UCP, by)-below, tagOver, by)
	}
	for _, r := range m.Results {
		total := sampleOf(t, m, r.Case).Total()
		ucp := r.Sample.Profile.Part(UCP)
		switch op := r.Case.Op; {
		case r.Case.Size == slotLen:
			assert.LessOrEqual(t, total, slotBudget[r.Case.Switch], r.Case)
		case r.Case.API == UCT:
			tl := cmp.Or(r.Case.Switch, transports[0])
			require.Contains(t, messageBudgets, tl)
			assert.LessOrEqual(t, total, messageBudgets[tl][op], r.Case)
		case !op.tagged():
			below := sampleOf(t, m, Case{Op: op, API: UCT, Size: 8, Switch: r.Case.Switch}).Total()
			assert.LessOrEqual(t, total-below, messageOver[op], r.Case)
		case op >= Rndv:
			assert.LessOrEqual(t, total-r.Sample.Profile.copied(), rndvBudget[op], r.Case)
		default:
			assert.LessOrEqual(t, ucp, tagBudget[op], r.Case)
		}
	}
}
