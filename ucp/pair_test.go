package ucp

import (
	"bytes"
	"log"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
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
	if runRole() {
		return
	}
	testenv.Main(m)
}

// oneGoroutine is why a long test is left out under the race detector, which has nothing to find.
const oneGoroutine = "one goroutine has both ends"

// patience is after how long nothing will happen: devices have goroutines of their
// own, whose speed no number of our steps bounds.
const patience = testenv.Watchdog

// transports is a set of transports over which the suite runs.
type transports struct {
	name string
	// open returns the components of two processes that reach each other. Both
	// may be the same.
	open func(t testing.TB) (a, b []uct.Component)
	// tls selects among them; the zero value is all of them.
	tls config.List
	// oneself: the transports reach the own worker only, so that both ends of a
	// pair are one.
	oneself bool
	// messagesOnly: there is no put, get or atomic.
	messagesOnly bool
	// byCost: messages are announced where that takes less time on this machine. Otherwise
	// their length decides, so that tests do the same everywhere.
	byCost bool
	// like is the set that most tests are the same over; over this one those are for sweeps.
	like string
}

// unlessAlike runs a test that is much the same over sets that are alike over one of them, in sweeps
// over each.
func (set transports) unlessAlike(t *testing.T, f func(t *testing.T)) {
	t.Run(set.name, func(t *testing.T) {
		if set.like != "" {
			testenv.SkipSweep(t, "as over "+set.like)
		}
		f(t)
	})
}

func fakes(name string, kinds ...fakeKind) transports {
	return transports{name: name, open: func(testing.TB) (a, b []uct.Component) {
		c := []uct.Component{newFabric(kinds...)}
		return c, c
	}}
}

// transportSets are those that every test of the suite runs over.
func transportSets() []transports {
	return append(fakeSets(), realSets()...)
}

// fakeSets are sets of transports in memory.
func fakeSets() []transports {
	return []transports{
		fakes("like rc+ud", likeRC(), likeUD()),
		fakes("like sm", likeSM()),
		fakes("like tcp", likeTCP()), // atomics by the target
		fakes("like sm+rc+ud", likeSM(), likeRC(), likeUD()),
	}
}

// overAll runs a test over transport sets that differ, in sweeps over every one.
func overAll(t *testing.T, f func(t *testing.T, p *pair)) {
	for _, set := range transportSets() {
		set.unlessAlike(t, func(t *testing.T) { f(t, newPair(t, set, Config{})) })
	}
}

// overEvery runs a test over every transport set.
func overEvery(t *testing.T, f func(t *testing.T, p *pair)) {
	for _, set := range transportSets() {
		t.Run(set.name, func(t *testing.T) { f(t, newPair(t, set, Config{})) })
	}
}

// end is one of two workers, with memory that the other one reaches.
type end struct {
	ctx *Context
	w   *Worker
	ep  *EP // to the other end; nil until connect
	mem *Mem
	key *RKey // of the other end's memory
}

// pair is two workers of one goroutine.
type pair struct {
	t    testing.TB
	a, b end
}

const memLen = 64 << 10

// testRndvThresh is Config.RndvThresh of pairs that do not choose by cost, in bytes.
const testRndvThresh = 32 << 10

func newPair(t testing.TB, set transports, cfg Config) *pair {
	t.Helper()
	ca, cb := set.open(t)
	if cfg.TLS.Names() == nil {
		cfg.TLS = set.tls
	}
	if cfg.RndvThresh == config.MemAuto && !set.byCost {
		cfg.RndvThresh = testRndvThresh
	}
	if cfg.Costs == "" { // tests choose alike on every machine
		cfg.Costs = CostsDeclared
	}
	p := &pair{t: t}
	p.a.open(t, cfg, ca)
	if set.oneself {
		p.b.ctx, p.b.w = p.a.ctx, p.a.w
		p.b.alloc(t)
	} else {
		p.b.open(t, cfg, cb)
	}
	return p
}

// oneself reports that both ends are one worker.
func (p *pair) oneself() bool { return p.a.w == p.b.w }

// owner is the test that an end is of: a testing.TB or a rapid.T.
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
	x.w.bufferWaitLimit = patience // the threads of the other end may stand for longer than ucs.RevokeLimit
	t.Cleanup(func() { require.NoError(t, x.ctx.Close()) })
	x.alloc(t)
	t.Cleanup(func() {
		require.NoError(t, x.w.Close())
		if !t.Failed() { // else they are what the test has not come to
			require.Zero(t, inUse(x.w), "requests that never came back")
			require.Zero(t, unclean(x.w), "requests in the pool that keep something")
		}
	})
}

// alloc gives x memory, which is closed after its worker unless that is shared.
func (x *end) alloc(t owner) {
	t.Helper()
	var err error
	x.mem, err = x.ctx.MemAlloc(memLen)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.mem.Close()) })
}

// connect gives a an EP to b and the key of b's memory.
func (p *pair) connect() *pair {
	p.t.Helper()
	p.a.dial(p.t, &p.b)
	return p
}

// both also gives b an EP to a.
func (p *pair) both() *pair {
	p.t.Helper()
	p.connect()
	p.b.dial(p.t, &p.a)
	return p
}

func (x *end) dial(t testing.TB, to *end) {
	t.Helper()
	var err error
	x.ep, err = x.w.NewEP(to.w.Address(), EPConfig{})
	require.NoError(t, err)
	x.key, err = x.ep.Unpack(to.mem.Pack())
	require.NoError(t, err)
	t.Cleanup(x.key.Close)
}

// step makes progress on both sides.
func (p *pair) step() int { return p.a.w.Progress() + p.b.w.Progress() }

// until makes progress on both sides until ok. Its failure shows the state of both workers.
func (p *pair) until(ok func() bool) {
	p.t.Helper()
	testenv.ProgressOr(p.t, patience, func() bool {
		if ok() {
			return true
		}
		p.step()
		return ok()
	}, p.state)
}

// state is that of both workers.
func (p *pair) state() string { return "a: " + p.a.w.State() + "b: " + p.b.w.State() }

// finish waits for an operation and returns how it ended.
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

// warm connects every lane.
func (p *pair) warm() *pair {
	p.t.Helper()
	require.NoError(p.t, p.finish(p.a.ep.Put([]byte{1}, p.a.key.Addr(), p.a.key, nil)))
	require.NoError(p.t, p.a.ep.AtomicPost(uct.AtomicAdd, 8, 0, p.a.key.Addr(), p.a.key))
	require.NoError(p.t, p.flush())
	return p
}

// pattern is n bytes that differ with seed.
func pattern(n, seed int) []byte { return testenv.Pattern(n, seed) }

func requireBytes(t testing.TB, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		for i := range want {
			require.Equal(t, want[i], got[i], "at byte %d of %d", i, len(want))
		}
	}
}

func requireZero(t testing.TB, b []byte, msg string) {
	t.Helper()
	require.Equal(t, len(b), bytes.Count(b, []byte{0}), msg)
}

// unclean counts the requests in the pools of w that have something of the operation before.
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
