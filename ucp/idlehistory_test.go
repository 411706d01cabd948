package ucp_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

func init() { roles.Register("idlepeers", idlePeersRole) }

// idleHistory is the activity of a worker before it is idle. do returns when the worker has no EP.
type idleHistory struct {
	name string
	self bool // also over self
	// wireup is the connect timeout; 0 is the default.
	wireup time.Duration
	do     func(t *testing.T, x *idleWorld, tls string, peers int)
}

var idleHistories = []idleHistory{
	{"left", true, 0, peersLeave},
	{"killed", false, 0, peersKilled},
	{"unreachable", false, 50 * time.Millisecond, peersUnreachable},
	{"descriptors", false, 0, peersWithoutDescriptors},
}

// idleHistorySets returns the transports of the histories: with -short only those that differ most, in a sweep also
// those that are like others.
func idleHistorySets() []string {
	if testing.Short() {
		return []string{"sm", "tcp"}
	}
	sets := []string{"self", "sm", "tcp", `\rc`, "ib"}
	if testenv.Sweep() {
		sets = append(sets, "rc_mlx5", `\ud`, "ud_mlx5", `\xrc`)
	}
	return sets
}

// TestIdle_AfterPeers: a worker sleeps after its peers closed their EPs or were killed, after it failed to connect, and
// after the process had no descriptor for a new connection. A readable descriptor that the worker does not read would
// end each sleep at once.
func TestIdle_AfterPeers(t *testing.T) {
	counts := []int{1}
	if testenv.Sweep() {
		counts = append(counts, testenv.Rounds(4, 100))
	}
	for _, tls := range idleHistorySets() {
		for _, h := range idleHistories {
			for _, peers := range counts {
				if tls == "self" && (!h.self || peers > 1) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", tls, h.name, peers), func(t *testing.T) {
					cfg := ucppair.FromEnv(t, "TLS="+tls)
					cfg.KeepaliveInterval = time.Second // ud detects killed peers by it
					cfg.WireupTimeout = h.wireup
					x := openIdleWorld(t, cfg)
					h.do(t, x, tls, peers)
					x.waitForEPs(t, 0)
					x.w.Engine().ParkLimit = time.Hour
					before := x.w.Engine().Sleeps.Load()
					stop := background(1, func(ctx context.Context) error { return x.w.Serve(ctx) })
					defer stop()
					x.requireSleep(t, before)
					x.requireFewSleeps(t)
					x.report(t)
				})
			}
		}
	}
}

// idleWindow is the time in which requireFewSleeps counts sleeps.
const idleWindow = 100 * time.Millisecond

// maxIdleSleeps limits the sleeps of an idle worker in idleWindow: timers of transports end some sleeps. A descriptor
// that stays readable ends some thousand.
const maxIdleSleeps = 20

// requireFewSleeps counts the sleeps of a served worker. A loaded machine has fewer of them. The worker sleeps again
// after a signal.
func (x *idleWorld) requireFewSleeps(t *testing.T) {
	t.Helper()
	sleeps := &x.w.Engine().Sleeps
	before := sleeps.Load()
	time.Sleep(idleWindow)
	after := sleeps.Load()
	assert.LessOrEqual(t, after-before, uint64(maxIdleSleeps), "sleeps in %v", idleWindow)
	x.w.Signal()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return sleeps.Load() > after })
}

// waitForEPs makes progress until the worker has n EPs.
func (x *idleWorld) waitForEPs(t *testing.T, n int) {
	t.Helper()
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		x.w.Progress()
		return x.w.EPs().Len() == n
	})
}

// serveWhile serves a worker while f runs.
func serveWhile(w *ucp.Worker, f func()) {
	stop := background(1, func(ctx context.Context) error { return w.Serve(ctx) })
	defer stop()
	f()
}

// peersLeave connects each peer in both directions and closes one EP, then the other one.
func peersLeave(t *testing.T, x *idleWorld, tls string, peers int) {
	ctx := context.Background()
	if tls == "self" {
		ep := x.connect(t, tls, x.w, x.w)
		require.NoError(t, ep.CloseWait(ctx, ucp.CloseFlush))
		return
	}
	for range peers {
		w := x.newWorker(t)
		var to, from *ucp.EP
		serveWhile(x.w, func() { to = x.connect(t, tls, w, x.w) })
		serveWhile(w, func() {
			from = x.connect(t, tls, x.w, w)
			require.NoError(t, from.CloseWait(ctx, ucp.CloseFlush))
		})
		serveWhile(x.w, func() {
			require.NoError(t, to.CloseWait(ctx, ucp.CloseFlush))
			require.NoError(t, w.Close())
		})
	}
}

// connect makes an EP from one worker to another, which is served, and sends over it.
func (x *idleWorld) connect(t *testing.T, tls string, from, to *ucp.Worker) *ucp.EP {
	t.Helper()
	ep, err := sendTo(context.Background(), idleTarget(tls, to, x.mem), from)
	require.NoError(t, err)
	return ep
}

// idleTarget is a worker, with memory if the transports have puts.
func idleTarget(tls string, w *ucp.Worker, mem *ucp.Mem) ucppair.Remote {
	r := ucppair.Remote{Addr: w.Address()}
	if !strings.Contains(tls, "ud") {
		r.Key = mem.Pack()
	}
	return r
}

// sendTo makes an EP from w to a worker, sends an active message, puts a byte if there is a key, and flushes. The EP is
// valid also after an error.
func sendTo(ctx context.Context, r ucppair.Remote, w *ucp.Worker) (*ucp.EP, error) {
	ep, err := w.NewEP(r.Addr, ucp.EPConfig{})
	if err != nil {
		return nil, err
	}
	message, err := ep.SendActive(0, nil, []byte{1}, nil)
	if err == nil {
		err = message.Wait(ctx)
	}
	if err != nil {
		return ep, err
	}
	if len(r.Key) > 0 {
		key, err := ep.Unpack(r.Key)
		if err != nil {
			return ep, err
		}
		defer key.Close()
		if err := ep.PutWait(ctx, []byte{1}, key.Addr(), key, nil); err != nil {
			return ep, err
		}
	}
	return ep, ep.FlushWait(ctx)
}

// peersPerChild is the number of workers of a child process.
const peersPerChild = 25

// idleCrowd is child processes with workers.
type idleCrowd struct {
	children []*roles.Child
	workers  []ucppair.Remote
}

// startCrowd starts processes with n workers, which are served.
func startCrowd(t *testing.T, x *idleWorld, tls string, n int) (c idleCrowd) {
	t.Helper()
	self := idleTarget(tls, x.w, x.mem)
	for left := n; left > 0; left -= peersPerChild {
		some := min(left, peersPerChild)
		p := roles.Start(t, "idlepeers", tls, some, self)
		c.children = append(c.children, p)
		for range some {
			r, err := ucppair.ParseRemote(p.Line(t))
			require.NoError(t, err)
			c.workers = append(c.workers, r)
		}
	}
	return c
}

// startSends makes each worker of each child send to the worker of the parent.
func (c idleCrowd) startSends(t *testing.T) {
	for _, p := range c.children {
		p.Send(t, "send")
	}
}

// awaitSends returns the result of each child: idleSent, or an error.
func (c idleCrowd) awaitSends(t *testing.T) (results []string) {
	for _, p := range c.children {
		results = append(results, p.Line(t))
	}
	return results
}

// requireSends checks that each worker of each child can send to w.
func (c idleCrowd) requireSends(t *testing.T, w *ucp.Worker) {
	t.Helper()
	c.startSends(t)
	serveWhile(w, func() {
		for _, result := range c.awaitSends(t) {
			assert.Equal(t, idleSent, result)
		}
	})
}

const idleSent = "sent"

// idlePeersRole serves workers. Each of them sends to the worker of the parent at each line of input.
func idlePeersRole(c *roles.Side) error {
	n, err := strconv.Atoi(c.Args[1])
	if err != nil {
		return err
	}
	parent, err := ucppair.ParseRemote(c.Args[2])
	if err != nil {
		return err
	}
	ctx, err := ucppair.OpenContext(c.Args[0])
	if err != nil {
		return err
	}
	mem, err := ctx.MemAlloc(8)
	if err != nil {
		return err
	}
	sends := make([]func() error, n)
	var closers []func() error
	for i := range n {
		w, err := ctx.NewWorker(ucp.WorkerConfig{})
		if err != nil {
			return err
		}
		serve := func() func() { return background(1, func(ctx context.Context) error { return w.Serve(ctx) }) }
		stop := serve()
		sends[i] = func() error {
			stop()
			_, err := sendTo(context.Background(), parent, w)
			stop = serve()
			return err
		}
		closers = append(closers, func() error { stop(); return w.Close() })
		c.Printf("%v", idleTarget(c.Args[0], w, mem))
	}
	for c.NextLine() {
		var err error
		for _, send := range sends {
			err = errors.Join(err, send())
		}
		if err != nil {
			c.Printf("%q", err)
		} else {
			c.Printf(idleSent)
		}
	}
	for _, closeWorker := range closers {
		err = errors.Join(err, closeWorker())
	}
	return errors.Join(err, mem.Close(), ctx.Close())
}

// peersKilled connects to workers of other processes in both directions and kills the processes.
func peersKilled(t *testing.T, x *idleWorld, tls string, peers int) {
	c := startCrowd(t, x, tls, peers)
	c.requireSends(t, x.w)
	var eps []*ucp.EP
	for _, r := range c.workers {
		ep, err := sendTo(context.Background(), r, x.w)
		require.NoError(t, err)
		eps = append(eps, ep)
	}
	for _, p := range c.children {
		p.Kill(t)
	}
	for _, ep := range eps {
		require.NoError(t, x.w.Until(context.Background(), func() bool { return ep.Err() != nil }))
		require.NoError(t, ep.CloseWait(context.Background(), ucp.CloseForce))
	}
}

// peersUnreachable connects to workers that are closed.
func peersUnreachable(t *testing.T, x *idleWorld, tls string, peers int) {
	ctx, err := ucppair.OpenContext(tls)
	require.NoError(t, err)
	defer func() { assert.NoError(t, ctx.Close()) }()
	var eps []*ucp.EP
	for range peers {
		w, err := ctx.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		addr := w.Address()
		require.NoError(t, w.Close())
		ep, err := x.w.NewEP(addr, ucp.EPConfig{})
		require.NoError(t, err)
		message, err := ep.SendActive(0, nil, []byte{1}, nil)
		if err == nil {
			message.Release()
		}
		eps = append(eps, ep)
	}
	for _, ep := range eps {
		require.NoError(t, x.w.Until(context.Background(), func() bool { return ep.Err() != nil }))
		require.NoError(t, ep.CloseWait(context.Background(), ucp.CloseForce))
	}
}

// peersWithoutDescriptors makes workers of other processes connect, and connects to them, while this process cannot
// open a descriptor. Then they connect, and close their workers.
func peersWithoutDescriptors(t *testing.T, x *idleWorld, tls string, peers int) {
	c := startCrowd(t, x, tls, peers)
	serveWhile(x.w, func() { // opens the descriptors for its sleeps
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { return x.w.Engine().Sleeps.Load() > 0 })
	})
	var eps []*ucp.EP
	testenv.WithoutDescriptors(t, func() {
		c.startSends(t)
		for _, r := range c.workers {
			ctx, stop := context.WithTimeout(context.Background(), time.Second)
			ep, _ := sendTo(ctx, r, x.w) // fails if the transport needs descriptors
			stop()
			if ep != nil {
				eps = append(eps, ep)
			}
		}
		ctx, stop := context.WithTimeout(context.Background(), idleWindow)
		defer stop()
		_ = x.w.Serve(ctx)
	})
	serveWhile(x.w, func() { t.Log(c.awaitSends(t)) }) // some fail if the transport needs descriptors
	c.requireSends(t, x.w)
	for _, ep := range eps {
		require.NoError(t, ep.CloseWait(context.Background(), ucp.CloseForce))
	}
	serveWhile(x.w, func() {
		for _, p := range c.children {
			p.End(t)
		}
	})
}
