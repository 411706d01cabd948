package instr

import (
	"bytes"
	"cmp"
	"maps"
	"runtime"
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

// allOps are the operations in the order of the report.
func allOps() (ops []Op) {
	for op := range opEnd {
		ops = append(ops, op)
	}
	return ops
}

// countLayers counts the cases of a plan on the layers as they are.
func countLayers(t *testing.T, fabric string, reps int, p Plan, by measurer) *Measurement {
	t.Helper()
	testenv.SkipRace(t, "the detector's own instructions would be counted")
	m, err := countBy(t, job{Cases: p.Cases(), Fabric: fabric, Reps: reps, Warmup: warmup}, by)
	require.NoError(t, err)
	return m
}

// tables renders a measurement for a failure message.
func tables(t *testing.T, m *Measurement) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, writeTables(&b, m, plainText))
	return "\n" + b.String()
}

// result finds a case that must have been counted.
func result(t *testing.T, m *Measurement, c Case) Sample {
	t.Helper()
	for _, r := range m.Results {
		if r.Case == c {
			require.Empty(t, r.Skip, c)
			return r.Sample
		}
	}
	t.Fatalf("no result of %v", c)
	return Sample{}
}

// everyCase are plans that, with the budgets, have each case. A window takes as long as a
// hundred other cases: TestBudget_Windows counts those of verbs and uct, and this only in
// sweeps.
func everyCase() []Plan {
	layers := []Part{Verbs, UCT, UCP}
	if testing.Short() {
		return []Plan{{Ops: []Op{Put, GetZcopy, Flush, AMShort, Tag}, APIs: layers, Sizes: []int{8}}}
	}
	single := slices.DeleteFunc(allOps(), Op.windowed)
	windows := Plan{Ops: []Op{PutWindow, GetWindow, FAddWindow}, APIs: []Part{UCP}, Sizes: []int{minZcopy}}
	if testenv.Sweep() {
		windows.APIs = layers
	}
	return []Plan{{Ops: single, APIs: layers, Sizes: []int{8, 1024}, Switches: true}, windows}
}

// TestLayers_EveryCaseCounts takes each case once on one fabric, and with -short some of them:
// each instruction is two system calls, and takes a hundred times as long in emulation. A sweep
// is for both fabrics.
func TestLayers_EveryCaseCounts(t *testing.T) {
	for _, fabric := range fabrics {
		t.Run(fabric, func(t *testing.T) {
			if fabric != "shm" {
				testenv.SkipSweep(t, "as over shm")
			}
			for _, plan := range everyCase() {
				checkCases(t, countLayers(t, fabric, 1, plan, measurer{noDevice: true}))
			}
		})
	}
}

// checkCases holds that each case ran the layer that was called and none above it.
func checkCases(t *testing.T, m *Measurement) {
	t.Helper()
	require.NotEmpty(t, m.Results)
	for _, r := range m.Results {
		assert.Empty(t, r.Skip, r.Case)
		assert.Positive(t, r.Sample.Total(), r.Case)
		assert.Positive(t, r.Sample.Profile.Part(r.Case.API), r.Case)
		for part := r.Case.API + 1; part < harness; part++ {
			assert.Zero(t, r.Sample.Profile.Part(part), "%v: %v is above it", r.Case, part)
		}
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// The budgets: what a layer may add to the one below it, in instructions.
const (
	budgetUCPPut  = 42 // UCP over UCT, put of 8 bytes; eight of them refuse ranges outside the region
	budgetIdleUCP = 28 // Worker.Progress with nothing to do, for each active iface
)

// TestLayers_WithoutTheDevice: what the layers execute does not depend on whether the device
// is counted, and of the device nothing is where it runs at full speed.
func TestLayers_WithoutTheDevice(t *testing.T) {
	testenv.SkipShort(t, "the same on any number of processors")
	plan := Plan{Ops: []Op{Put, Add}, APIs: []Part{Verbs, UCT}, Sizes: []int{8}}
	with := countLayers(t, "shm", usual, plan, measurer{})
	without := countLayers(t, "shm", usual, plan, measurer{noDevice: true})
	for i, r := range without.Results {
		assert.Equal(t, with.Results[i].Sample.Total(), r.Sample.Total(), r.Case)
		if runtime.GOARCH == "amd64" {
			assert.Zero(t, r.Sample.Profile.Part(Device), r.Case)
		}
		assert.Positive(t, with.Results[i].Sample.Profile.Part(Device), r.Case)
	}
}

// usual is how often a case is counted to see what is usual.
const usual = 5

// countBudget counts what a budget is set for, the device not among it.
func countBudget(t *testing.T, reps int, p Plan) *Measurement {
	t.Helper()
	testenv.SkipCheckptr(t, "its own instructions would be counted")
	testenv.SkipShort(t, "the same on any number of processors")
	return countLayers(t, "shm", reps, p, measurer{detail: ByFunction, noDevice: true})
}

func TestBudget_Put(t *testing.T) {
	m := countBudget(t, usual, Plan{Ops: []Op{Put}, APIs: []Part{UCT, UCP}, Sizes: []int{8}})
	total := func(api Part) int { return result(t, m, Case{Op: Put, API: api, Size: 8}).Total() }
	assert.LessOrEqual(t, total(UCP)-total(UCT), budgetUCPPut, "what UCP adds to UCT")
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// TestBudget_Shared: what a SharedWorker adds to a put while no other goroutine uses it: a
// lock and its release, and two calls.
func TestBudget_Shared(t *testing.T) {
	const most = 75
	m := countBudget(t, usual, Plan{Ops: []Op{Put}, APIs: []Part{UCP}, Sizes: []int{8}, Switches: true})
	put := Case{Op: Put, API: UCP, Size: 8}
	alone := result(t, m, put).Total()
	put.Switch = switchShared
	assert.LessOrEqual(t, result(t, m, put).Total()-alone, most)
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// TestBudget_RC: what uct/ib/rc adds to verbs. minZcopy is the length of what has no 8 bytes.
func TestBudget_RC(t *testing.T) {
	budget := map[Op]int{Put: 35, Get: 110, Add: 60, FAdd: 90, Flush: 120, PutZcopy: 80, GetZcopy: 80}
	m := countBudget(t, usual, Plan{Ops: slices.Collect(maps.Keys(budget)), APIs: []Part{Verbs, UCT}, Sizes: []int{8, minZcopy}})
	for op, most := range budget {
		size := op.sizes([]int{8, minZcopy})[0]
		total := func(api Part) int { return result(t, m, Case{Op: op, API: api, Size: size}).Total() }
		assert.LessOrEqual(t, total(UCT)-total(Verbs), most, op)
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// windowBudgets are what uct/ib/rc may add to verbs for one operation of a window, its share of
// the flush included.
var windowBudgets = map[Op]int{PutWindow: 95, GetWindow: 98, FAddWindow: 108}

func TestBudget_Windows(t *testing.T) {
	m := countBudget(t, 1, Plan{Ops: slices.Collect(maps.Keys(windowBudgets)), APIs: []Part{Verbs, UCT}, Sizes: []int{minZcopy}})
	for op, most := range windowBudgets {
		total := func(api Part) int {
			return result(t, m, Case{Op: op, API: api, Size: op.sizes([]int{minZcopy})[0]}).Total()
		}
		assert.LessOrEqual(t, (total(UCT)-total(Verbs))/windowLen, most, op)
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// overUCT is what UCP may add to UCT: the goals of get, fetch and flush, and what puts and
// gets take that are not copied.
var overUCT = map[Op]int{Get: 80, FAdd: 80, Flush: 150, PutZcopy: 126, GetZcopy: 132}

// TestBudget_UCP: what UCP adds to UCT over rc. minZcopy is the length of what has no 8 bytes.
func TestBudget_UCP(t *testing.T) {
	m := countBudget(t, usual, Plan{Ops: slices.Collect(maps.Keys(overUCT)), APIs: []Part{UCT, UCP}, Sizes: []int{8, minZcopy}})
	for op, most := range overUCT {
		size := op.sizes([]int{8, minZcopy})[0]
		total := func(api Part) int { return result(t, m, Case{Op: op, API: api, Size: size}).Total() }
		assert.LessOrEqual(t, total(UCP)-total(UCT), most, op)
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// TestBudget_DirectPut: rc_mlx5, which writes the queue itself, executes at most half
// of the instructions of rc outside the device.
func TestBudget_DirectPut(t *testing.T) {
	m := countBudget(t, usual, Plan{Ops: []Op{Put}, APIs: []Part{UCT}, Sizes: []int{8}, Transports: transports[:2]})
	over := result(t, m, Case{Op: Put, API: UCT, Size: 8}).Total()
	direct := result(t, m, Case{Op: Put, API: UCT, Size: 8, Switch: transports[1]}).Total()
	assert.LessOrEqual(t, 2*direct, over)
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// directBudgets are what one-sided operations of 8 bytes on mapped memory may take over sm,
// with all layers and by uct alone: what was counted, and a few percent.
var directBudgets = map[Op]map[Part]int{
	Put: {UCT: 45, UCP: 82},
	Get: {UCT: 46, UCP: 128},
}

func TestBudget_OneSidedOverSM(t *testing.T) {
	m := countBudget(t, usual, Plan{Ops: []Op{Put, Get}, APIs: []Part{UCT, UCP}, Sizes: []int{8}, Transports: []string{sm.Name}})
	for op, budget := range directBudgets {
		for api, most := range budget {
			assert.LessOrEqual(t, result(t, m, Case{Op: op, API: api, Size: 8, Switch: sm.Name}).Total(), most, "%s, %s", op, api)
		}
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// messageBudgets are what a message of 8 bytes, which are its header, may take outside the
// device, by transport: the sender's AMShort and AMBcopy, and the receiver's progress. They
// are what was counted, and a few percent.
var messageBudgets = map[string]map[Op]int{
	rc.Name:   {AMShort: 440, AMBcopy: 570, AMShortRecv: 625},
	dv.RCName: {AMShort: 170, AMBcopy: 450, AMShortRecv: 440},
	ud.Name:   {AMShort: 1065, AMBcopy: 1040, AMShortRecv: 730},
	dv.UDName: {AMShort: 1060, AMBcopy: 1035, AMShortRecv: 630},
	sm.Name:   {AMShort: 74, AMBcopy: 228, AMShortRecv: 133},
	self.Name: {AMShort: 40, AMBcopy: 125, AMShortRecv: 64},
}

func TestBudget_Messages(t *testing.T) {
	m := countBudget(t, usual, Plan{Ops: []Op{AMShort, AMBcopy, AMShortRecv}, APIs: []Part{UCT}, Sizes: []int{8}})
	for _, c := range m.Results {
		tl := cmp.Or(c.Case.Switch, transports[0])
		require.Contains(t, messageBudgets, tl)
		assert.LessOrEqual(t, result(t, m, c.Case).Total(), messageBudgets[tl][c.Case.Op], c.Case)
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// Both sides of a message run what they must: the device on the sender's and the
// receiver's where there is one, and no other layer than uct where there is none.
func TestLayers_MessagesOnBothSides(t *testing.T) {
	ops := []Op{AMShort, AMShortRecv, AMBcopy, AMBcopyRecv}
	m := countLayers(t, "shm", 2, Plan{Ops: ops, APIs: []Part{UCT}, Sizes: []int{8}}, measurer{})
	for _, op := range ops {
		for i, tl := range transports {
			c := Case{Op: op, API: UCT, Size: 8}
			if i > 0 {
				c.Switch = tl
			}
			s := result(t, m, c)
			assert.Positive(t, s.Profile.Part(UCT), c)
			assert.Equal(t, deviceless[tl] == nil, s.Profile.Part(Device) > 0, c)
		}
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// messageOver: what SendActive adds to AMShort over sm and self, of 8 bytes, by side.
var messageOver = map[Op]int{AMShort: 45, AMShortRecv: 45}

func TestBudget_ActiveMessages(t *testing.T) {
	ops, over := []Op{AMShort, AMShortRecv}, []string{sm.Name, self.Name}
	m := countBudget(t, usual, Plan{Ops: ops, APIs: []Part{UCT, UCP}, Sizes: []int{8}, Transports: over})
	for _, op := range ops {
		for _, tl := range over {
			total := func(api Part) int { return result(t, m, Case{Op: op, API: api, Size: 8, Switch: tl}).Total() }
			assert.LessOrEqual(t, total(UCP)-total(UCT), messageOver[op], "%s, %s", op, tl)
		}
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// tagBudget are the instructions of ucp itself for a tagged message of 8 bytes over sm and self.
var tagBudget = map[Op]int{Tag: 43, TagPost: 68, TagRecv: 78, TagKept: 273}

func TestBudget_Tags(t *testing.T) {
	over := []string{sm.Name, self.Name}
	m := countBudget(t, usual, Plan{Ops: slices.Collect(maps.Keys(tagBudget)), APIs: []Part{UCP}, Sizes: []int{8}, Transports: over})
	for op, most := range tagBudget {
		for _, tl := range over {
			s := result(t, m, Case{Op: op, API: UCP, Size: 8, Switch: tl})
			assert.LessOrEqual(t, s.Profile.Part(UCP), most, "%s, %s", op, tl)
		}
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// rndvBudget are the instructions of ucp and sm for a message that is announced and got, from and
// to allocated memory: announce it, get it and acknowledge, end the send. Each byte of the copy is a
// step, so one run is counted.
var rndvBudget = map[Op]int{Rndv: 830, RndvRecv: 1590, RndvDone: 515}

func TestBudget_Rendezvous(t *testing.T) {
	m := countBudget(t, 1, Plan{Ops: slices.Collect(maps.Keys(rndvBudget)), APIs: []Part{UCP}, Sizes: []int{minRndv}, Transports: []string{sm.Name}})
	for op, most := range rndvBudget {
		assert.LessOrEqual(t, result(t, m, Case{Op: op, API: UCP, Size: minRndv, Switch: sm.Name}).Total(), most, op)
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// TestBudget_IdleProgress: the rig's worker has one active iface, rc; on ud nothing
// is connected after the handshake.
func TestBudget_IdleProgress(t *testing.T) {
	m := countBudget(t, usual, Plan{Ops: []Op{Idle}, APIs: []Part{Verbs, UCT, UCP}})
	assert.LessOrEqual(t, result(t, m, Case{Op: Idle, API: UCP}).Total(), budgetIdleUCP)
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// TestSwitches_ShowTheirCost: each alternative of the UCX study costs what it is about
// where it applies, by the way that operations take otherwise.
func TestSwitches_ShowTheirCost(t *testing.T) {
	const (
		resolveMost = 300 // a request and its queues would be more
		pollLeast   = 50  // a poll of an empty completion queue
	)
	ops := []Op{Put, Get, Add, FAdd, Idle} // the others: TestLayers_EveryCaseCounts
	m := countBudget(t, usual, Plan{Ops: ops, APIs: []Part{UCP}, Sizes: []int{8}, Switches: true})
	more := func(c Case, by string) int {
		plain := result(t, m, c).Total()
		c.Switch = by
		return result(t, m, c).Total() - plain
	}
	for _, c := range []Case{{Op: Put, Size: 8}, {Op: Get, Size: 8}, {Op: Add, Size: 8}, {Op: FAdd, Size: 8}} {
		c.API = UCP
		assert.Positive(t, more(c, switchResolve), c)
		assert.Less(t, more(c, switchResolve), resolveMost, c)
	}
	idle := Case{Op: Idle, API: UCP}
	assert.Greater(t, more(idle, switchPollTx), pollLeast)
	assert.Greater(t, more(idle, switchProgressAll), pollLeast)
	if t.Failed() {
		t.Log(tables(t, m))
	}
}
