package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/all"
)

// idleEnv is the number of seconds for which the test measures the CPU time of idle workers.
const idleEnv = "GUCX_UCP_IDLE"

// idleSets are the transports over which workers are idle.
var idleSets = []string{"self", "sm", "tcp", `\rc`, "rc_mlx5", "sm,self,tcp", "all"}

// TestIdle: workers whose peers are connected and send nothing sleep, in all ways of serving, whatever else happens on
// the machine. No goroutine polls them meanwhile.
func TestIdle(t *testing.T) {
	counts := []int{1, 9}
	if testenv.Sweep() {
		counts = append(counts, testenv.Rounds(20, 100))
	}
	for _, tls := range idleSets {
		for _, peers := range counts {
			if tls == "self" && peers > 1 {
				continue // a peer must be the worker itself
			}
			for _, by := range idlers {
				t.Run(fmt.Sprintf("%s/%d/%s", tls, peers, by.name), func(t *testing.T) {
					if peers > 1 && tls != "all" {
						testenv.SkipShort(t, "as with one peer")
					}
					x := newIdleWorld(t, tls, peers)
					x.w.Engine().ParkLimit = time.Hour
					before := x.w.Engine().Sleeps.Load()
					stop := by.start(t, x)
					x.requireSleep(t, before)
					x.report(t)
					stop()
				})
			}
		}
	}
}

// idler is a way to serve an idle worker.
type idler struct {
	name  string
	start func(t *testing.T, x *idleWorld) (stop func())
}

var idlers = []idler{
	{"Serve", func(t *testing.T, x *idleWorld) func() {
		return background(1, func(ctx context.Context) error { return x.w.Serve(ctx) })
	}},
	{"waiter", func(t *testing.T, x *idleWorld) func() {
		r := x.w.NewPendingRequest()
		return background(1, func(ctx context.Context) error {
			defer r.Release()
			defer r.Complete(0)
			return r.Wait(ctx)
		})
	}},
	{"shared", func(t *testing.T, x *idleWorld) func() {
		s := x.w.Share()
		return background(sharers, func(ctx context.Context) error {
			return s.Run(ctx, func() (*ucp.Request, error) { return x.w.NewPendingRequest(), nil })
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

// idleWorld is a worker with peers that have put to it and are idle now.
type idleWorld struct {
	ctx   *ucp.Context
	w     *ucp.Worker
	mem   *ucp.Mem
	peers []*ucp.Worker
}

func newIdleWorld(t *testing.T, tls string, peers int) *idleWorld {
	t.Helper()
	x := openIdleWorld(t, ucppair.FromEnv(t, "TLS="+tls))
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

// openIdleWorld opens the worker without peers.
func openIdleWorld(t *testing.T, cfg ucp.Config) *idleWorld {
	t.Helper()
	x := &idleWorld{}
	var err error
	x.ctx, err = ucp.NewContext(cfg, tlsets.Components(all.Config{})...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.ctx.Close()) })
	x.mem, err = x.ctx.MemAlloc(8)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.mem.Close()) })
	x.w = x.newWorker(t)
	return x
}

func (x *idleWorld) newWorker(t *testing.T) *ucp.Worker {
	t.Helper()
	w, err := x.ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.Close()) })
	w.OnActive(0, nil)
	return w
}

// put puts from another worker to the served worker.
func (x *idleWorld) put(t *testing.T, from *ucp.Worker) {
	t.Helper()
	ctx := context.Background()
	ep, key, err := ucppair.Remote{Addr: x.w.Address(), Key: x.mem.Pack()}.Dial(from)
	require.NoError(t, err)
	t.Cleanup(key.Close)
	require.NoError(t, ep.PutWait(ctx, []byte{1}, key.Addr(), key, nil))
	require.NoError(t, ep.FlushWait(ctx))
}

// idleLooks is the number of successive checks in which an idle worker must sleep.
const idleLooks = 500

// requireSleep waits until the worker sleeps, and checks that it continues to sleep. Pending messages of handshakes may
// wake it before.
func (x *idleWorld) requireSleep(t *testing.T, before uint64) {
	t.Helper()
	sleeps, last, looks := &x.w.Engine().Sleeps, before, 0
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		if now := sleeps.Load(); now != last {
			last, looks = now, 0
		}
		looks++
		return last > before && looks >= idleLooks
	})
}

// report logs the CPU time of the process while it is idle.
func (x *idleWorld) report(t *testing.T) {
	env := os.Getenv(idleEnv)
	if env == "" {
		return
	}
	seconds, err := strconv.Atoi(env)
	require.NoError(t, err)
	debug.FreeOSMemory()    // or the runtime does it for a while, with up to 1 % of a CPU
	time.Sleep(time.Second) // for work in progress
	before, start := testenv.CPUTime(), time.Now()
	time.Sleep(time.Duration(seconds) * time.Second)
	share := 100 * float64(testenv.CPUTime()-before) / float64(time.Since(start))
	t.Logf("%.3f %% of a processor", share)
	assert.Less(t, share, 0.1)
}
