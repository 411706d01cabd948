package ucpgroup

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
)

// task is a collective operation with the data of each rank, and the expected results, computed serially.
type task struct {
	name        string
	root        int
	send, recv  [][]byte // by rank
	want        [][]byte
	nums, sums  [][]int64
	wantNumbers [][]int64
}

// partSizes are lengths of a part around the limits of algorithms, for 1 to 17 ranks.
var partSizes = []int{0, 1, 8, 255, 256, 257, 1000, 5000, 9000, 33_000, 70_000, 93_000}

// counts are numbers of elements around the limits of reductions.
var counts = []int{0, 1, 16, 256, 257, 1000, 66_000}

var kinds = []string{"barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce"}

// newTask makes the data of an operation of n ranks.
func newTask(rng *rand.Rand, kind string, n, root, size, count int) *task {
	x := &task{name: kind, root: root, send: make([][]byte, n), recv: make([][]byte, n), want: make([][]byte, n)}
	x.nums, x.sums, x.wantNumbers = make([][]int64, n), make([][]int64, n), make([][]int64, n)
	parts := func(q, n int) []byte {
		b := make([]byte, size*n)
		for i := range b {
			b[i] = byte(rng.Uint32()) + byte(q)
		}
		return b
	}
	for q := range n {
		switch kind {
		case "bcast":
			x.recv[q] = make([]byte, size*n)
			if q == root {
				x.recv[q] = parts(q, n)
			}
		case "gather", "allgather":
			x.send[q] = parts(q, 1)
			if kind == "allgather" || q == root {
				x.recv[q] = make([]byte, size*n)
			}
		case "scatter":
			x.recv[q] = make([]byte, size)
			if q == root {
				x.send[q] = parts(q, n)
			}
		case "alltoall":
			x.send[q], x.recv[q] = parts(q, n), make([]byte, size*n)
		case "reduce", "allreduce":
			x.nums[q] = make([]int64, count)
			for i := range x.nums[q] {
				x.nums[q][i] = rng.Int64()
			}
			if kind == "allreduce" || q == root {
				x.sums[q] = make([]int64, count)
			}
		}
	}
	x.compute(n, size, count)
	return x
}

// compute computes the operation serially.
func (x *task) compute(n, size, count int) {
	sum := make([]int64, count)
	for _, nums := range x.nums {
		for i, v := range nums {
			sum[i] += v
		}
	}
	for q := range n {
		switch x.name {
		case "bcast":
			x.want[q] = slices.Clone(x.recv[x.root])
		case "gather", "allgather":
			if x.recv[q] != nil {
				x.want[q] = slices.Concat(x.send...)
			}
		case "scatter":
			x.want[q] = x.send[x.root][q*size:][:size]
		case "alltoall":
			for p := range n {
				x.want[q] = append(x.want[q], x.send[p][q*size:][:size]...)
			}
		case "reduce", "allreduce":
			if x.sums[q] != nil {
				x.wantNumbers[q] = sum
			}
		}
	}
}

// begin starts the operation on rank q.
func (x *task) begin(c *Comm, q int) (*Request, error) {
	switch x.name {
	case "bcast":
		return c.Ibcast(x.root, x.recv[q])
	case "gather":
		return c.Igather(x.root, x.send[q], x.recv[q])
	case "scatter":
		return c.Iscatter(x.root, x.send[q], x.recv[q])
	case "allgather":
		return c.Iallgather(x.send[q], x.recv[q])
	case "alltoall":
		return c.Ialltoall(x.send[q], x.recv[q])
	case "reduce":
		return Ireduce(c, x.root, x.nums[q], x.sums[q], Sum[int64])
	case "allreduce":
		return Iallreduce(c, x.nums[q], x.sums[q], Sum[int64])
	}
	return c.Ibarrier()
}

// check compares the result of rank q.
func (x *task) check(q int) error {
	if len(x.want[q]) != 0 && !slices.Equal(x.want[q], x.recv[q]) {
		return fmt.Errorf("%s: rank %d has other bytes", x.name, q)
	}
	if len(x.wantNumbers[q]) != 0 && !slices.Equal(x.wantNumbers[q], x.sums[q]) {
		return fmt.Errorf("%s: rank %d has other numbers", x.name, q)
	}
	return nil
}

// TestCollectives_Serial: collective operations of 1 to 17 ranks, of any sizes and roots, several in succession,
// started by the ranks in any order, have the results of serial operations.
func TestCollectives_Serial(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has all ranks")
	const most = 17
	testenv.NeedDescriptors(t, 2000)
	x := newStepped(t, "sm", most)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, most).Draw(rt, "ranks")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		order := rng.Perm(most)[:n] // their ranks in the world
		ranks := make([]int32, n)
		for i, q := range order {
			ranks[i] = int32(q)
		}
		var tasks []*task
		for range rapid.IntRange(1, 4).Draw(rt, "operations") {
			tasks = append(tasks, newTask(rng,
				rapid.SampledFrom(kinds).Draw(rt, "kind"), n, rapid.IntRange(0, n-1).Draw(rt, "root"),
				rapid.SampledFrom(partSizes).Draw(rt, "size"), rapid.SampledFrom(counts).Draw(rt, "count")))
		}
		x.runTasks(t, rng, ranks, tasks)
	})
}

// runTasks makes each rank start the tasks in their order, and waits for all of them.
func (x *stepped) runTasks(t *testing.T, rng *rand.Rand, ranks []int32, tasks []*task) {
	const context = 77
	n := len(ranks)
	comms, begun, reqs := make([]*Comm, n), make([]int, n), []*Request(nil)
	for i, q := range ranks {
		comms[i] = newComm(x.groups[q], context, i, ranks)
	}
	for len(reqs) < n*len(tasks) {
		if i := rng.IntN(n); begun[i] < len(tasks) {
			r, err := tasks[begun[i]].begin(comms[i], i)
			require.NoError(t, err)
			reqs = append(reqs, r)
			begun[i]++
		}
		for range rng.IntN(4) {
			x.groups[rng.IntN(len(x.groups))].Progress()
		}
	}
	require.NoError(t, x.ended(reqs...))
	for _, k := range tasks {
		for q := range n {
			require.NoError(t, k.check(q), "%d ranks", n)
		}
	}
}

// TestCollectives_Sweep: each operation, with each number of ranks and size around the limits.
func TestCollectives_Sweep(t *testing.T) {
	testenv.SkipShort(t, "it takes every algorithm at every number of ranks")
	const most = 9
	x := newStepped(t, "sm", most)
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= most; n++ {
		for _, kind := range kinds {
			sizes := partSizes
			if kind == "reduce" || kind == "allreduce" {
				sizes = counts
			}
			for _, size := range sizes {
				x.runTasks(t, rng, allRanks(n), []*task{newTask(rng, kind, n, size%n, size, size)})
			}
		}
	}
}

// TestOps: the result of each operation on two numbers, by type.
func TestOps(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	checkOp(t, "sum", Sum[int8], []int8{1, -2, 127}, []int8{2, -3, 1}, []int8{3, -5, -128})
	checkOp(t, "product", Product[float64], []float64{2, -3, inf}, []float64{0.5, -2, 2}, []float64{1, 6, inf})
	checkOp(t, "min", Min[float64], []float64{1, 3, -inf}, []float64{2, -4, 0}, []float64{1, -4, -inf})
	checkOp(t, "max", Max[float64], []float64{1, 3, -inf}, []float64{2, -4, 0}, []float64{2, 3, 0})
	checkOp(t, "and", And[uint16], []uint16{0b1100, 1 << 15}, []uint16{0b1010, 1<<15 | 1}, []uint16{0b1000, 1 << 15})
	checkOp(t, "or", Or[uint16], []uint16{0b1100, 1 << 15}, []uint16{0b1010, 1}, []uint16{0b1110, 1<<15 | 1})
	checkOp(t, "xor", Xor[uint16], []uint16{0b1100, 1 << 15}, []uint16{0b1010, 1<<15 | 1}, []uint16{0b0110, 1})
	for _, pair := range [][2]float64{{nan, 1}, {1, nan}} {
		for _, op := range []Op[float64]{Min[float64], Max[float64]} {
			into := []float64{pair[0]}
			op(into, []float64{pair[1]})
			assert.True(t, math.IsNaN(into[0]))
		}
	}
}

func checkOp[T Number](t *testing.T, name string, op Op[T], into, from, want []T) {
	t.Helper()
	given := slices.Clone(from)
	fold(op)(Bytes(into), Bytes(from))
	assert.Equal(t, want, into, name)
	assert.Equal(t, given, from, name)
}
