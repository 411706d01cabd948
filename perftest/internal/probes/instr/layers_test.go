package instr

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/rc"
)

// allOps returns the operations in the order of the report.
func allOps() (ops []Op) {
	for op := range numOps {
		ops = append(ops, op)
	}
	return ops
}

// countLayers counts cases on the real layers.
func countLayers(t *testing.T, fabric string, reps int, c []Case, by measurer) *Measurement {
	t.Helper()
	m, err := countBy(t, job{Cases: c, Fabric: fabric, Reps: reps, Warmup: warmup}, by)
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

// sampleOf finds a case that must have been counted.
func sampleOf(t *testing.T, m *Measurement, c Case) Sample {
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

// everyCase returns plans that, with the budgets, have each case except windows of UCP. Each of those takes as long
// as a hundred others, and runs in sweeps.
func everyCase() []Plan {
	layers := []Part{Verbs, AVerbs, UCT, UCP}
	if testing.Short() {
		return []Plan{{Ops: []Op{Put, GetZcopy, Flush, AMShort, Tag}, APIs: layers, Sizes: []int{8}}}
	}
	single := slices.DeleteFunc(allOps(), Op.windowed)
	if testenv.Sweep() {
		return []Plan{
			{Ops: single, APIs: layers, Sizes: []int{8, 1024}, Switches: true},
			{Ops: []Op{PutWindow, GetWindow, FAddWindow}, APIs: layers, Sizes: []int{minZcopy}},
		}
	}
	return []Plan{
		{Ops: single, APIs: layers, Sizes: []int{1024}, Switches: true},
		{Ops: []Op{AMShort, AMShortRecv}, APIs: []Part{UCP}, Sizes: []int{8}, Transports: []string{rc.Name}},
	}
}

// TestLayers_EveryCaseCounts counts each case once on one fabric, and with -short some of them: each instruction
// takes three system calls, and a hundred times as long in emulation. A sweep runs both fabrics.
func TestLayers_EveryCaseCounts(t *testing.T) {
	for _, fabric := range fabrics {
		t.Run(fabric, func(t *testing.T) {
			if fabric != "shm" {
				testenv.SkipSweep(t, "the same code as over shm")
			}
			checkCases(t, countLayers(t, fabric, 1, cases(everyCase()...), measurer{stepped: Verbs}))
		})
	}
}

// cases returns the cases of all plans.
func cases(plans ...Plan) (all []Case) {
	for _, p := range plans {
		all = append(all, p.Cases()...)
	}
	return all
}

// checkCases checks that each case has executed the layer that was called and none above it.
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

// TestLayers_WithoutTheDevice: the instructions of the layers do not depend on whether the device is counted. If it
// is not, only the first instruction of the device is in the counts.
func TestLayers_WithoutTheDevice(t *testing.T) {
	testenv.SkipShort(t, "the same on any number of CPUs")
	plan := cases(Plan{Ops: []Op{Put, Add}, APIs: []Part{UCT}, Sizes: []int{8}})
	with := countLayers(t, "shm", usual, plan, measurer{})
	without := countLayers(t, "shm", usual, plan, measurer{stepped: Verbs})
	for i, r := range without.Results {
		assert.Equal(t, with.Results[i].Sample.Total(), r.Sample.Total(), r.Case)
		device := r.Sample.Profile.Part(Device)
		assert.Positive(t, device, r.Case)
		if runtime.GOARCH == "amd64" {
			assert.LessOrEqual(t, device, doorbells, r.Case)
		}
		assert.Greater(t, with.Results[i].Sample.Profile.Part(Device), doorbells, r.Case)
	}
}

// doorbells limits the number of calls of the device for one operation.
const doorbells = 4

// Both sides of a message execute the expected layers: the device on both sides if there is one, and otherwise only
// uct.
func TestLayers_MessagesOnBothSides(t *testing.T) {
	ops := []Op{AMShort, AMShortRecv, AMBcopy, AMBcopyRecv}
	m := countLayers(t, "shm", 1, cases(Plan{Ops: ops, APIs: []Part{UCT}, Sizes: []int{8}}), measurer{stepped: Verbs})
	for _, r := range m.Results {
		s := sampleOf(t, m, r.Case)
		assert.Positive(t, s.Profile.Part(UCT), r.Case)
		assert.Equal(t, !deviceless[r.Case.Switch], s.Profile.Part(Device) > 0, r.Case)
	}
	if t.Failed() {
		t.Log(tables(t, m))
	}
}
