// Package ucppair connects two workers of package ucp, for tests of package ucp_test and of packages above ucp.
package ucppair

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// End is one of two workers, with memory that the other one can access.
type End struct {
	Ctx *ucp.Context
	W   *ucp.Worker
	EP  *ucp.EP // to the other end; nil until Connect
	Mem *ucp.Mem
	Key *ucp.RKey // of the memory of the other end
}

// Pair is two workers of one goroutine.
type Pair struct {
	T    testing.TB
	A, B End
}

// Inside has functions that look into a worker. The tests of package ucp set it; other packages need not.
var Inside struct {
	// Opened is called for each new worker.
	Opened func(*ucp.Worker)
	// CheckClosed is called when a worker has closed. It returns an error if the worker has requests that were
	// not released, or released requests that still refer to something.
	CheckClosed func(*ucp.Worker) error
}

// New opens two workers over the components of a set. Messages use rendezvous from the same length on every machine,
// unless cfg has another one. The workers close when the test ends.
func New(t testing.TB, set tlsets.Set, cfg ucp.Config) *Pair {
	t.Helper()
	if cfg.RndvThresh == config.MemAuto {
		cfg.RndvThresh = tlsets.RndvThresh
	}
	return Open(t, set, cfg)
}

// Open is New with the rendezvous threshold of cfg, which may depend on the costs of the transports.
func Open(t testing.TB, set tlsets.Set, cfg ucp.Config) *Pair {
	t.Helper()
	ca, cb := set.Open(t)
	if cfg.TLS.Names() == nil {
		cfg.TLS = set.TLS
	}
	if cfg.Costs == "" { // the choices of tests must not depend on the machine
		cfg.Costs = ucp.CostsDeclared
	}
	p := &Pair{T: t}
	p.A.Open(t, cfg, ca)
	if set.Oneself {
		p.B.Ctx, p.B.W = p.A.Ctx, p.A.W
		p.B.alloc(t)
	} else {
		p.B.Open(t, cfg, cb)
	}
	return p
}

// Fake opens two workers over a fabric with one transport of each kind; the fabric knows A as worker 0 and B as worker 1.
func Fake(t testing.TB, cfg ucp.Config, kinds ...faketp.Kind) (*Pair, *faketp.Fabric) {
	t.Helper()
	f := faketp.New(kinds...)
	set := tlsets.Set{Name: "fake", Open: func(testing.TB) (a, b []uct.Component) { return []uct.Component{f}, []uct.Component{f} }}
	return New(t, set, cfg), f
}

// Oneself reports whether both ends are one worker.
func (p *Pair) Oneself() bool { return p.A.W == p.B.W }

// Owner is the test that opens an end: a testing.TB or a rapid.T.
type Owner interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
	Failed() bool
}

// Open opens the context and the worker of x, which close when the test ends, and allocates its memory.
func (x *End) Open(t Owner, cfg ucp.Config, comps []uct.Component) {
	t.Helper()
	var err error
	x.Ctx, err = ucp.NewContext(cfg, comps...)
	must(t, err)
	x.W, err = x.Ctx.NewWorker(ucp.WorkerConfig{})
	must(t, err)
	if Inside.Opened != nil {
		Inside.Opened(x.W)
	}
	t.Cleanup(func() { must(t, x.Ctx.Close()) })
	x.alloc(t)
	t.Cleanup(func() {
		must(t, x.W.Close())
		if !t.Failed() && Inside.CheckClosed != nil { // a failed test has not waited for all of its requests
			must(t, Inside.CheckClosed(x.W))
		}
	})
}

// alloc allocates the memory of x. It is closed after the worker, unless both ends share the worker.
func (x *End) alloc(t Owner) {
	t.Helper()
	var err error
	x.Mem, err = x.Ctx.MemAlloc(tlsets.MemLen)
	must(t, err)
	t.Cleanup(func() { must(t, x.Mem.Close()) })
}

// Connect makes an EP of A to B, and the key of B's memory. It returns p.
func (p *Pair) Connect() *Pair {
	p.T.Helper()
	p.A.Dial(p.T, &p.B)
	return p
}

// Both is Connect in both directions.
func (p *Pair) Both() *Pair {
	p.T.Helper()
	p.Connect()
	p.B.Dial(p.T, &p.A)
	return p
}

// Dial makes an EP of x to another end, and the key of its memory.
func (x *End) Dial(t testing.TB, to *End) {
	t.Helper()
	var err error
	x.EP, err = x.W.NewEP(to.W.Address(), ucp.EPConfig{})
	must(t, err)
	x.Key, err = x.EP.Unpack(to.Mem.Pack())
	must(t, err)
	t.Cleanup(x.Key.Close)
}

// Step makes progress on both ends. It returns the number of events.
func (p *Pair) Step() int { return p.A.W.Progress() + p.B.W.Progress() }

// Until makes progress on both ends until ok returns true.
func (p *Pair) Until(ok func() bool) {
	p.T.Helper()
	testenv.ProgressBoth(p.T, p.A.W, p.B.W, ok)
}

// State returns the state of both workers, for failures.
func (p *Pair) State() string { return "a: " + p.A.W.State() + "b: " + p.B.W.State() }

// Finish waits for an operation, whose call returned r and err, and returns its result.
func (p *Pair) Finish(r *ucp.Request, err error) error {
	p.T.Helper()
	if r == nil || err != nil {
		return err
	}
	p.Until(r.Done)
	_, err = r.Test()
	return err
}

// FinishAlone is Finish with progress of A only. It panics if the operation fails: it may run on other goroutines
// and where allocations are counted.
func (p *Pair) FinishAlone(r *ucp.Request, err error) {
	for err == nil && r != nil && !r.Done() {
		p.A.W.Progress()
	}
	mustTest(r, err)
}

// MustFinish is Finish that panics if the operation fails: it may run where allocations are counted.
func (p *Pair) MustFinish(r *ucp.Request, err error) {
	for err == nil && r != nil && !r.Done() {
		p.Step()
	}
	mustTest(r, err)
}

// mustTest panics if the operation of r, which is complete, has failed.
func mustTest(r *ucp.Request, err error) {
	if r != nil && err == nil {
		_, err = r.Test()
	}
	if err != nil {
		panic(err)
	}
}

// Flush waits for all operations of A's EP.
func (p *Pair) Flush() error {
	p.T.Helper()
	return p.Finish(p.A.EP.Flush())
}

// Warm connects all lanes of A's EP. It returns p.
func (p *Pair) Warm() *Pair {
	p.T.Helper()
	must(p.T, p.Finish(p.A.EP.Put([]byte{1}, p.A.Key.Addr(), p.A.Key, nil)))
	must(p.T, p.A.EP.AtomicPost(uct.AtomicAdd, 8, 0, p.A.Key.Addr(), p.A.Key))
	must(p.T, p.Flush())
	return p
}

// FromEnv returns the configuration that a line of the environment, without GUCX_, selects.
func FromEnv(t testing.TB, line string) (cfg ucp.Config) {
	t.Helper()
	must(t, config.FromEnv([]string{"GUCX_" + line}, cfg.Table()))
	return cfg
}

// Release releases the request of an operation whose result the test does not need.
func Release(r *ucp.Request, err error) error {
	r.Release()
	return err
}

// must fails the test if there is an error.
func must(t Owner, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
