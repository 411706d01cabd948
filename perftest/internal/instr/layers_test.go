package instr

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

// allOps are the operations in the order of the report.
func allOps() (ops []Op) {
	for op := range opEnd {
		ops = append(ops, op)
	}
	return ops
}

// countLayers counts the cases of a plan on the layers as they are, often enough to
// see what is usual.
func countLayers(t *testing.T, fabric string, p Plan, d Detail) *Measurement {
	t.Helper()
	return countTimes(t, fabric, 5, p, d)
}

func countTimes(t *testing.T, fabric string, reps int, p Plan, d Detail) *Measurement {
	t.Helper()
	testenv.SkipRace(t, "the detector's own instructions would be counted")
	m, err := count(t, job{Cases: p.Cases(), Fabric: fabric, Reps: reps, Warmup: warmup}, d)
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

func TestLayers_EveryCaseCounts(t *testing.T) {
	for _, fabric := range fabrics {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			m := countTimes(t, fabric, 2, Plan{
				Ops: allOps(), APIs: []Part{Verbs, UCT, UCP}, Sizes: []int{8, 1024}, Switches: true,
			}, ByPart)
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
		})
	}
}

// The budgets: what a layer may add to the one below it, in instructions.
const (
	budgetUCPPut  = 40 // UCP over UCT, put of 8 bytes
	budgetUCTPut  = 60 // uct/ib/rc over verbs, put of 8 bytes
	budgetIdleUCP = 30 // Worker.Progress with nothing to do, for each active iface
)

// countBudget counts what a budget is set for.
func countBudget(t *testing.T, p Plan) *Measurement {
	t.Helper()
	testenv.SkipCheckptr(t, "its own instructions would be counted")
	return countLayers(t, "shm", p, ByFunction)
}

func TestBudget_Put(t *testing.T) {
	m := countBudget(t, Plan{Ops: []Op{Put}, APIs: []Part{Verbs, UCT, UCP}, Sizes: []int{8}})
	total := func(api Part) int { return result(t, m, Case{Op: Put, API: api, Size: 8}).Total() }
	assert.LessOrEqual(t, total(UCT)-total(Verbs), budgetUCTPut, "what rc adds to verbs")
	assert.LessOrEqual(t, total(UCP)-total(UCT), budgetUCPPut, "what UCP adds to UCT")
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// TestBudget_DirectPut: rc_mlx5, which writes the queue itself, executes at most half
// of the instructions of rc outside the device.
func TestBudget_DirectPut(t *testing.T) {
	m := countBudget(t, Plan{Ops: []Op{Put}, APIs: []Part{UCT}, Sizes: []int{8}, Transports: transports})
	over := result(t, m, Case{Op: Put, API: UCT, Size: 8}).Total()
	direct := result(t, m, Case{Op: Put, API: UCT, Size: 8, Switch: transports[1]}).Total()
	assert.LessOrEqual(t, 2*direct, over)
	if t.Failed() {
		t.Log(tables(t, m))
	}
}

// TestBudget_IdleProgress: the rig's worker has one active iface, rc; on ud nothing
// is connected after the handshake.
func TestBudget_IdleProgress(t *testing.T) {
	m := countBudget(t, Plan{Ops: []Op{Idle}, APIs: []Part{Verbs, UCT, UCP}})
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
	m := countBudget(t, Plan{Ops: allOps(), APIs: []Part{UCP}, Sizes: []int{8}, Switches: true})
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
