package ucp

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/uct/all"
)

// idleEnv asks for the processor time that idle workers use in so many seconds.
const idleEnv = "GUCX_UCP_IDLE"

// idleSets are the transports over which workers are idle.
var idleSets = []string{"self", "sm", "tcp", `\rc`, "rc_mlx5", "sm,self,tcp", "all"}

// TestIdle: workers with peers that are connected and say nothing sleep. Nobody polls them
// meanwhile, however they are served and whatever else happens on the machine.
func TestIdle(t *testing.T) {
	counts := []int{1, 9}
	if testenv.Sweep() {
		counts = append(counts, testenv.Rounds(20, 100))
	}
	for _, tls := range idleSets {
		for _, peers := range counts {
			if tls == "self" && peers > 1 {
				continue // there is only the worker itself
			}
			for _, by := range idlers {
				t.Run(fmt.Sprintf("%s/%d/%s", tls, peers, by.name), func(t *testing.T) {
					if peers > 1 && tls != "all" {
						testenv.SkipShort(t, "as with one peer")
					}
					x := newIdleWorld(t, tls, peers)
					x.w.engine.ParkLimit = time.Hour
					before := x.w.engine.Sleeps.Load()
					stop := by.start(t, x)
					x.requireSleep(t, before)
					x.report(t)
					stop()
				})
			}
		}
	}
}

// idler is a way to serve a worker while nothing happens.
type idler struct {
	name  string
	start func(t *testing.T, x *idleWorld) (stop func())
}

var idlers = []idler{
	{"Serve", func(t *testing.T, x *idleWorld) func() {
		return background(1, func(ctx context.Context) error { return x.w.Serve(ctx) })
	}},
	{"waiter", func(t *testing.T, x *idleWorld) func() {
		r := x.w.newRequest(nil, &groupStage) // nothing completes it
		return background(1, func(ctx context.Context) error {
			defer r.Release()
			defer r.complete(0)
			return r.Wait(ctx)
		})
	}},
	{"shared", func(t *testing.T, x *idleWorld) func() {
		s := x.w.Share()
		return background(sharers, func(ctx context.Context) error {
			return s.Run(ctx, func() (*Request, error) { return x.w.newRequest(nil, &groupStage), nil })
		})
	}},
}

// background runs f in n goroutines until it is stopped.
func background(n int, f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range n {
		running.Go(func() { _ = f(ctx) })
	}
	return func() { cancel(); running.Wait() }
}

// idleWorld is a worker with peers that have put to it and say nothing more.
type idleWorld struct {
	ctx   *Context
	w     *Worker
	mem   *Mem
	peers []*Worker
}

func newIdleWorld(t *testing.T, tls string, peers int) *idleWorld {
	t.Helper()
	x := openIdleWorld(t, fromEnv(t, "TLS="+tls))
	stop := background(1, func(ctx context.Context) error { return x.w.Serve(ctx) })
	if tls == "self" {
		stop()
		x.put(t, x.w)
		return x
	}
	for range peers {
		w := x.newWorker(t)
		x.put(t, w)
		x.peers = append(x.peers, w)
	}
	stop()
	return x
}

// openIdleWorld opens the worker, which has no peers yet.
func openIdleWorld(t *testing.T, cfg Config) *idleWorld {
	t.Helper()
	x := &idleWorld{}
	var err error
	x.ctx, err = NewContext(cfg, tlsets.Components(all.Config{})...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.ctx.Close()) })
	x.mem, err = x.ctx.MemAlloc(8)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.mem.Close()) })
	x.w = x.newWorker(t)
	return x
}

func (x *idleWorld) newWorker(t *testing.T) *Worker {
	t.Helper()
	w, err := x.ctx.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	w.OnActive(0, nil)
	return w
}

// put reaches the served worker from another one.
func (x *idleWorld) put(t *testing.T, from *Worker) {
	t.Helper()
	ctx := context.Background()
	ep, key, err := remoteMem{x.w.Address(), x.mem.Pack()}.dial(from)
	require.NoError(t, err)
	t.Cleanup(key.Close)
	require.NoError(t, ep.PutWait(ctx, []byte{1}, key.Addr(), key, nil))
	require.NoError(t, ep.FlushWait(ctx))
}

// idleLooks is at how many looks in a row an idle worker still sleeps.
const idleLooks = 500

// requireSleep waits until the worker sleeps, for as long as nothing wakes it, and nothing
// does. What handshakes have left to do may wake it before.
func (x *idleWorld) requireSleep(t *testing.T, before uint64) {
	t.Helper()
	sleeps, last, looks := &x.w.engine.Sleeps, before, 0
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		if now := sleeps.Load(); now != last {
			last, looks = now, 0
		}
		looks++
		return last > before && looks >= idleLooks
	})
}

// report measures the processor time of the process while nothing happens.
func (x *idleWorld) report(t *testing.T) {
	env := os.Getenv(idleEnv)
	if env == "" {
		return
	}
	seconds, err := strconv.Atoi(env)
	require.NoError(t, err)
	debug.FreeOSMemory()    // or the runtime does it for a while, with up to 1 % of a processor
	time.Sleep(time.Second) // what was under way
	before, start := cpuTime(), time.Now()
	time.Sleep(time.Duration(seconds) * time.Second)
	share := 100 * float64(cpuTime()-before) / float64(time.Since(start))
	t.Logf("%.3f %% of a processor", share)
	assert.Less(t, share, 0.1)
}
