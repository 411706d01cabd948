package ucpgroup

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
)

// counter is the sum of a counter of the workers of all ranks.
func (x *stepped) counter(name string) (sum uint64) {
	for _, g := range x.groups {
		for path, n := range g.w.Stats().Snapshot().All() {
			if path == name {
				sum += n
			}
		}
	}
	return sum
}

// idle reports whether no rank has an open lane to another one.
func (x *stepped) idle() bool {
	for _, g := range x.groups {
		for q := range g.peers {
			if q != g.rank && len(g.peers[q].ep.Info().Lanes) > 0 {
				return false
			}
		}
	}
	return true
}

// TestCollectives_IdleLanes: collective operations give the same results when their lanes have closed because the ranks had no
// operations, and while lanes close.
func TestCollectives_IdleLanes(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has all ranks")
	const n, timeout = 4, 20 * time.Millisecond // a longer one makes the test only slower
	const closed, reopened = "worker.idle_closed_lanes", "worker.reopened_eps"
	overAll(t, func(t *testing.T, tls string) {
		c := openContextWith(t, ucp.Config{EPIdleTimeout: timeout, KeepaliveInterval: config.Infinite}, tls)
		x, rng := steppedOf(t, workersOf(t, c, n)), rand.New(rand.NewPCG(3, 4))
		run := func(kind string) {
			x.runTasks(t, rng, allRanks(n), []*task{newTask(rng, kind, n, rng.IntN(n), 9000, 1000)})
		}
		run("alltoall") // connects all ranks
		for _, kind := range kinds {
			x.until(x.idle)
			before := x.counter(reopened)
			run(kind)
			assert.Greater(t, x.counter(reopened), before, kind)

			before = x.counter(closed)
			x.until(func() bool { return x.counter(closed) > before })
			run(kind)
		}
		assert.Zero(t, x.counter("worker.failed_eps"))
		assert.Zero(t, x.counter("worker.broken_lanes"))
	})
}
