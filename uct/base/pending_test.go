package base

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

// req is a pending request that logs its id and returns a given error.
type req struct {
	uct.PendingReq
	id int
}

type rig struct {
	a    Arbiter
	q    [4]PendingQueue
	log  []int
	gate int // requests that may still run
	// refuse has the queues without resources, by id/100.
	refuse [4]bool
	inside func(r *req)
}

func (g *rig) HasResources() bool { return g.gate > 0 }

func (g *rig) add(t require.TestingT, q, i int) *req {
	r := &req{id: q*100 + i}
	r.Func = func(*uct.PendingReq) error {
		if g.inside != nil {
			g.inside(r)
		}
		if g.refuse[q] {
			return uct.ErrNoResource
		}
		g.gate--
		g.log = append(g.log, r.id)
		return nil
	}
	require.NoError(t, g.a.Add(&g.q[q], &r.PendingReq))
	return r
}

func (g *rig) fill(t require.TestingT, queues, each int) {
	for q := range queues {
		for i := range each {
			g.add(t, q, i)
		}
	}
}

func TestArbiter_FIFOPerQueueAndTurns(t *testing.T) {
	g := rig{gate: 100}
	g.fill(t, 3, 3)
	require.Equal(t, 9, g.a.Len())
	assert.Equal(t, 9, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 100, 200, 1, 101, 201, 2, 102, 202}, g.log)
	assert.Zero(t, g.a.Len())
	assert.True(t, g.q[0].Empty())
	assert.Zero(t, g.a.Dispatch(&g))
}

func TestArbiter_NextEPAfterClosedGate(t *testing.T) {
	var g rig
	g.fill(t, 3, 2)
	for range 6 {
		g.gate = 1
		require.Equal(t, 1, g.a.Dispatch(&g))
	}
	assert.Equal(t, []int{0, 100, 200, 1, 101, 201}, g.log)
}

func TestArbiter_StalledQueueDoesNotBlockOthersAndIsFirstNext(t *testing.T) {
	g := rig{gate: 100}
	g.refuse[1] = true
	g.fill(t, 3, 2)
	assert.Equal(t, 4, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 200, 1, 201}, g.log)
	assert.Equal(t, 2, g.q[1].Len())
	g.refuse[1] = false
	g.add(t, 0, 7)
	assert.Equal(t, 3, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 200, 1, 201, 100, 7, 101}, g.log)
}

func TestArbiter_StalledQueueRunsOnceInADispatch(t *testing.T) {
	g := rig{gate: 100}
	g.refuse = [4]bool{true, true, true, true}
	calls := 0
	g.inside = func(*req) { calls++ }
	g.fill(t, 4, 50)
	assert.Zero(t, g.a.Dispatch(&g))
	assert.Equal(t, 4, calls)
	assert.Equal(t, 200, g.a.Len())
}

func TestArbiter_RequestQueuesItselfAgain(t *testing.T) {
	g := rig{gate: 100}
	g.inside = func(r *req) {
		if len(g.log) < 5 {
			require.NoError(t, g.a.Add(&g.q[0], &r.PendingReq))
		}
	}
	g.fill(t, 1, 2)
	assert.Equal(t, 2, g.a.Dispatch(&g), "no more than were waiting at the start")
	for g.a.Dispatch(&g) > 0 {
	}
	assert.Equal(t, []int{0, 1, 0, 1, 0, 1}, g.log[:6])
	assert.Zero(t, g.a.Len())
}

func TestArbiter_RequestMovesToAnotherQueue(t *testing.T) {
	g := rig{gate: 100}
	moved := false
	g.inside = func(r *req) {
		if r.id == 0 && !moved {
			moved = true
			require.NoError(t, g.a.Add(&g.q[3], &r.PendingReq))
		}
	}
	g.fill(t, 1, 2)
	assert.Equal(t, 2, g.a.Dispatch(&g), "as many as were waiting")
	assert.Equal(t, 1, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 0, 1}, g.log)
	assert.True(t, g.q[3].Empty())
}

func TestArbiter_AddDuringDispatchKeepsOrder(t *testing.T) {
	g := rig{gate: 100}
	g.refuse[0] = true
	added := false
	g.inside = func(*req) {
		if !added {
			added = true
			g.add(t, 0, 1)
		}
	}
	g.fill(t, 1, 1)
	assert.Zero(t, g.a.Dispatch(&g))
	assert.Equal(t, 2, g.q[0].Len())
	g.refuse[0] = false
	assert.Equal(t, 2, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 1}, g.log)
}

func TestArbiter_AddOfQueuedRequestFails(t *testing.T) {
	g := rig{gate: 100}
	r := g.add(t, 0, 0)
	assert.Equal(t, uct.ErrInvalidParam, g.a.Add(&g.q[1], &r.PendingReq))
	assert.Equal(t, uct.ErrInvalidParam, g.a.Add(&g.q[0], &r.PendingReq))
	assert.Equal(t, uct.ErrInvalidParam, g.a.Add(&g.q[0], &uct.PendingReq{}))
	g.a.Dispatch(&g)
	assert.Nil(t, r.Next)
	assert.NoError(t, g.a.Add(&g.q[1], &r.PendingReq))
}

func TestArbiter_DispatchInsideFuncHasNoEffect(t *testing.T) {
	g := rig{gate: 100}
	g.inside = func(*req) { assert.Zero(t, g.a.Dispatch(nil)) }
	g.fill(t, 2, 2)
	assert.Equal(t, 4, g.a.Dispatch(nil))
}

func TestArbiter_FailedQueuesPassTheGate(t *testing.T) {
	var g rig // the gate is closed
	g.fill(t, 3, 2)
	g.a.Fail(&g.q[1])
	g.a.Fail(&g.q[3])
	g.add(t, 3, 0)
	assert.Equal(t, 3, g.a.Dispatch(&g))
	assert.Equal(t, []int{100, 300, 101}, g.log)
	assert.Equal(t, 4, g.a.Len())
	g.gate = 4
	assert.Equal(t, 4, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 200, 1, 201}, g.log[3:])
}

// TestArbiter_ClosedGateRunsNothing: the cost of a Dispatch does not grow with the number of EPs that wait for
// the same resource.
func TestArbiter_ClosedGateRunsNothing(t *testing.T) {
	var g rig
	calls := 0
	g.inside = func(*req) { calls++ }
	g.fill(t, 4, 50)
	for i := 1; i <= 100; i++ {
		g.gate = 1
		require.Equal(t, 1, g.a.Dispatch(&g))
		require.Equal(t, i, calls)
	}
}

func TestArbiter_OtherErrorsCountAsDone(t *testing.T) {
	var g rig
	r := g.add(t, 0, 0)
	r.Func = func(*uct.PendingReq) error { return uct.ErrEPFailed }
	assert.Equal(t, 1, g.a.Dispatch(nil))
	assert.Zero(t, g.a.Len())
}

func TestArbiter_QueuedItselfAndStalledIsQueuedOnce(t *testing.T) {
	var g rig
	r := g.add(t, 0, 0)
	r.Func = func(p *uct.PendingReq) error {
		require.NoError(t, g.a.Add(&g.q[1], p))
		return uct.ErrNoResource
	}
	assert.Zero(t, g.a.Dispatch(nil), "nothing was done")
	assert.Equal(t, 1, g.a.Len())
	assert.Equal(t, 1, g.q[1].Len())
	assert.True(t, g.q[0].Empty())
}

func TestArbiter_Purge(t *testing.T) {
	g := rig{gate: 100}
	g.fill(t, 3, 3)
	var purged []int
	n := 0
	g.a.Purge(&g.q[1], func(r *uct.PendingReq) {
		assert.Nil(t, r.Next)
		purged = append(purged, 100+n)
		n++
		require.NoError(t, g.a.Add(&g.q[3], r), "a purged request may be queued elsewhere")
	})
	assert.Equal(t, []int{100, 101, 102}, purged)
	assert.Equal(t, 9, g.a.Len())
	g.a.Purge(&g.q[1], func(*uct.PendingReq) { t.Error("empty queue") })
	assert.Equal(t, 9, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 200, 100, 1, 201, 101, 2, 202, 102}, g.log)
}

func TestArbiter_PurgeOtherQueueDuringDispatch(t *testing.T) {
	g := rig{gate: 100}
	g.inside = func(*req) { g.a.Purge(&g.q[1], func(*uct.PendingReq) {}) }
	g.fill(t, 3, 1)
	assert.Equal(t, 2, g.a.Dispatch(&g))
	assert.Equal(t, []int{0, 200}, g.log)
	assert.Zero(t, g.a.Len())
}

func TestPendingQueue_BlocksDirectPostsButNotItsOwn(t *testing.T) {
	g := rig{gate: 100}
	assert.False(t, g.q[0].Blocks())
	g.inside = func(r *req) {
		assert.False(t, g.q[0].Blocks(), "own queue")
		assert.True(t, g.q[1].Blocks(), "other queue")
	}
	g.add(t, 0, 0)
	g.add(t, 0, 1)
	g.add(t, 1, 0)
	assert.True(t, g.q[0].Blocks())
	g.gate = 1
	g.a.Dispatch(&g)
	assert.True(t, g.q[0].Blocks(), "one is left")
	g.gate, g.inside = 100, nil
	g.a.Dispatch(&g)
	assert.False(t, g.q[0].Blocks())
}

func TestArbiter_AllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("allocation counts differ under the race detector")
	}
	var a Arbiter
	var q [2]PendingQueue
	refuse := false
	var r [8]uct.PendingReq
	for i := range r {
		r[i].Func = func(*uct.PendingReq) error {
			if refuse {
				return uct.ErrNoResource
			}
			return nil
		}
	}
	purge := func(*uct.PendingReq) {}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for i := range r {
			if a.Add(&q[i%2], &r[i]) != nil {
				t.Error("add")
			}
		}
		refuse = true
		a.Dispatch(nil)
		refuse = false
		a.Dispatch(nil)
		if a.Add(&q[0], &r[0]) != nil {
			t.Error("add")
		}
		a.Purge(&q[0], purge)
	}))
}

// TestArbiter_Model compares the arbiter with lists: every request runs once,
// the requests of a queue in the order of Add, also if requests fail, are purged or are added
// during Dispatch.
func TestArbiter_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g rig
		var model [4][]int
		next := 0
		ran := func(id int) {
			q := id / 100000
			require.NotEmpty(t, model[q])
			require.Equal(t, model[q][0], id, "queue %d out of order", q)
			model[q] = model[q][1:]
		}
		add := func(q int) {
			next++
			id := q*100000 + next
			r := &req{id: id}
			r.Func = func(*uct.PendingReq) error {
				if g.refuse[q] || g.gate <= 0 {
					return uct.ErrNoResource
				}
				g.gate--
				ran(id)
				return nil
			}
			require.NoError(t, g.a.Add(&g.q[q], &r.PendingReq))
			model[q] = append(model[q], id)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) { add(rapid.IntRange(0, 3).Draw(t, "q")) },
			"dispatch": func(t *rapid.T) {
				g.gate = rapid.IntRange(0, 5).Draw(t, "gate")
				for q := range g.refuse {
					g.refuse[q] = rapid.Bool().Draw(t, "refuse")
				}
				g.a.Dispatch(&g)
			},
			"purge": func(t *rapid.T) {
				q := rapid.IntRange(0, 3).Draw(t, "q")
				n := 0
				g.a.Purge(&g.q[q], func(*uct.PendingReq) { n++ })
				require.Len(t, model[q], n)
				model[q] = nil
			},
			"": func(t *rapid.T) {
				sum := 0
				for q := range model {
					require.Equal(t, len(model[q]), g.q[q].Len())
					require.Equal(t, len(model[q]) == 0, g.q[q].Empty())
					sum += len(model[q])
				}
				require.Equal(t, sum, g.a.Len())
			},
		})
	})
}

func BenchmarkArbiter(b *testing.B) {
	var a Arbiter
	var q [16]PendingQueue
	r := make([]uct.PendingReq, len(q))
	for i := range r {
		r[i].Func = func(*uct.PendingReq) error { return nil }
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range r {
			if a.Add(&q[i], &r[i]) != nil {
				b.Fatal("add")
			}
		}
		a.Dispatch(nil)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(r)), "ns/req")
}
