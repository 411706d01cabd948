package ucp

import (
	"log"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/roles"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

func TestMain(m *testing.M) {
	if tls := os.Getenv(childEnv); tls != "" {
		if err := serveAsChild(tls); err != nil {
			log.Fatal(err)
		}
		return
	}
	if roles.Run() {
		return
	}
	testenv.Main(m)
}

// oneGoroutine is the reason why the race detector skips a test.
const oneGoroutine = "one goroutine has both ends"

const (
	memLen = tlsets.MemLen
	// patience limits a wait. Only a hang reaches it.
	patience = testenv.Watchdog
)

// overAll runs a test over sets that differ; in a sweep over all sets.
func overAll(t *testing.T, f func(t *testing.T, p *pair)) {
	for _, set := range faketp.AllSets() {
		set.Run(t, func(t *testing.T) { f(t, newPair(t, set, Config{})) })
	}
}

// overEvery runs a test over all sets.
func overEvery(t *testing.T, f func(t *testing.T, p *pair)) {
	for _, set := range faketp.AllSets() {
		t.Run(set.Name, func(t *testing.T) { f(t, newPair(t, set, Config{})) })
	}
}

// end is one of two workers, with memory that the other one can access.
type end struct {
	ctx *Context
	w   *Worker
	ep  *EP // to the other end; nil until connect
	mem *Mem
	key *RKey // of the memory of the other end
}

// pair is two workers of one goroutine.
type pair struct {
	t    testing.TB
	a, b end
}

// newPair opens two workers over the components of a set. Messages use rendezvous from the same length on every
// machine, unless cfg has another one. The workers close when the test ends.
func newPair(t testing.TB, set tlsets.Set, cfg Config) *pair {
	t.Helper()
	if cfg.RndvThresh == config.MemAuto {
		cfg.RndvThresh = tlsets.RndvThresh
	}
	return openPair(t, set, cfg)
}

// openPair is newPair with the rendezvous threshold of cfg, which may depend on the costs of the transports.
func openPair(t testing.TB, set tlsets.Set, cfg Config) *pair {
	t.Helper()
	if cfg.Costs == "" { // the choices of tests must not depend on the machine
		cfg.Costs = CostsDeclared
	}
	if cfg.TLS.Names() == nil {
		cfg.TLS = set.TLS
	}
	ca, cb := set.Open(t)
	p := &pair{t: t}
	p.a.open(t, cfg, ca)
	if set.Oneself {
		p.b.ctx, p.b.w = p.a.ctx, p.a.w
		p.b.alloc(t)
	} else {
		p.b.open(t, cfg, cb)
	}
	return p
}

// oneself reports whether both ends are one worker.
func (p *pair) oneself() bool { return p.a.w == p.b.w }

// owner is the test that opens an end: a testing.TB or a rapid.T.
type owner interface {
	require.TestingT
	Helper()
	Cleanup(func())
	Failed() bool
}

func (x *end) open(t owner, cfg Config, comps []uct.Component) {
	t.Helper()
	var err error
	x.ctx, err = NewContext(cfg, comps...)
	require.NoError(t, err)
	x.w, err = x.ctx.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	x.w.bufferWaitLimit = patience // the threads of the other end may be stopped for longer than ucs.RevokeLimit
	t.Cleanup(func() { require.NoError(t, x.ctx.Close()) })
	x.alloc(t)
	t.Cleanup(func() {
		require.NoError(t, x.w.Close())
		if !t.Failed() { // a failed test has not waited for all of its requests
			require.Zero(t, inUse(x.w), "requests that were not released")
			require.Zero(t, unclean(x.w), "requests in the pool that refer to something")
		}
	})
}

// alloc allocates the memory of x. It is closed after the worker, unless both ends share the worker.
func (x *end) alloc(t owner) {
	t.Helper()
	var err error
	x.mem, err = x.ctx.MemAlloc(memLen)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.mem.Close()) })
}

// connect makes an EP of a to b, and the key of b's memory. It returns p.
func (p *pair) connect() *pair {
	p.t.Helper()
	p.a.dial(p.t, &p.b)
	return p
}

// both is connect in both directions.
func (p *pair) both() *pair {
	p.t.Helper()
	p.connect()
	p.b.dial(p.t, &p.a)
	return p
}

// dial makes an EP of x to another end, and the key of its memory.
func (x *end) dial(t testing.TB, to *end) {
	t.Helper()
	var err error
	x.ep, err = x.w.NewEP(to.w.Address(), EPConfig{})
	require.NoError(t, err)
	x.key, err = x.ep.Unpack(to.mem.Pack())
	require.NoError(t, err)
	t.Cleanup(x.key.Close)
}

// step makes progress on both ends. It returns the number of events.
func (p *pair) step() int { return p.a.w.Progress() + p.b.w.Progress() }

// until makes progress on both ends until ok returns true.
func (p *pair) until(ok func() bool) {
	p.t.Helper()
	testenv.ProgressBoth(p.t, p.a.w, p.b.w, ok)
}

// state returns the state of both workers, for failures.
func (p *pair) state() string { return "a: " + p.a.w.State() + "b: " + p.b.w.State() }

// finish waits for an operation, whose call returned r and err, and returns its result.
func (p *pair) finish(r *Request, err error) error {
	p.t.Helper()
	if r == nil || err != nil {
		return err
	}
	p.until(r.Done)
	err = r.err()
	r.Release()
	return err
}

// flush waits for all operations of a's EP.
func (p *pair) flush() error {
	p.t.Helper()
	return p.finish(p.a.ep.Flush())
}

// warm connects all lanes of a's EP. It returns p.
func (p *pair) warm() *pair {
	p.t.Helper()
	require.NoError(p.t, p.finish(p.a.ep.Put([]byte{1}, p.a.key.Addr(), p.a.key, nil)))
	require.NoError(p.t, p.a.ep.AtomicPost(uct.AtomicAdd, 8, 0, p.a.key.Addr(), p.a.key))
	require.NoError(p.t, p.flush())
	return p
}

// Checks of package testenv.
var (
	pattern      = testenv.Pattern
	requireBytes = testenv.RequireBytes
	requireZero  = testenv.RequireZero
)

// unclean counts the requests in the pools of w that refer to something of their last operation.
func unclean(w *Worker) (n int) {
	for _, free := range []*Request{w.pool.free, w.pool.receives} {
		for r := free; r != nil; r = r.next {
			if r.target.key != nil || r.msg != nil || r.cached != nil || r.pieces != nil || r.parent != nil || r.onDone != nil {
				n++
			}
		}
	}
	return n
}

// inUse counts the requests of w that are not in the pool.
func inUse(w *Worker) int {
	n := w.pool.made
	for _, free := range []*Request{w.pool.free, w.pool.receives} {
		for r := free; r != nil; r = r.next {
			n--
		}
	}
	return n
}
