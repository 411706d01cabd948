package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// pair is two workers of one goroutine, with an EP of the first to the second, for tests of functions that are not
// exported. All other tests are in package ucp_test and use package ucppair, which this package cannot import.
type pair struct {
	t   testing.TB
	w   [2]*Worker
	ep  *EP  // of w[0] to w[1]
	mem *Mem // of w[1]
	key *RKey
}

// newPair opens two workers over the components of a set, which close when the test ends.
func newPair(t testing.TB, set tlsets.Set, cfg Config) *pair {
	t.Helper()
	if cfg.RndvThresh == config.MemAuto {
		cfg.RndvThresh = tlsets.RndvThresh
	}
	cfg.Costs, cfg.TLS = CostsDeclared, set.TLS
	p := &pair{t: t}
	var ctx *Context
	a, b := set.Open(t)
	for i, comps := range [][]uct.Component{a, b} {
		var err error
		ctx, err = NewContext(cfg, comps...)
		require.NoError(t, err)
		w, err := ctx.NewWorker(WorkerConfig{})
		require.NoError(t, err)
		p.w[i] = w
		AwaitBuffers(w)
		t.Cleanup(func() { require.NoError(t, w.Context().Close()) })
	}
	var err error
	p.mem, err = ctx.MemAlloc(tlsets.MemLen)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.mem.Close()) })
	t.Cleanup(func() {
		for _, w := range p.w {
			require.NoError(t, w.Close())
			if !t.Failed() { // a failed test has not waited for all of its requests
				require.NoError(t, CheckPool(w))
			}
		}
	})
	p.ep, err = p.w[0].NewEP(p.w[1].Address(), EPConfig{})
	require.NoError(t, err)
	p.key, err = p.ep.Unpack(p.mem.Pack())
	require.NoError(t, err)
	t.Cleanup(p.key.Close)
	return p
}

// fakePair is newPair over one fabric, which the test can inspect.
func fakePair(t testing.TB, kinds ...faketp.Kind) (*pair, *faketp.Fabric) {
	t.Helper()
	f := faketp.New(kinds...)
	set := tlsets.Set{Open: func(testing.TB) (a, b []uct.Component) { return []uct.Component{f}, []uct.Component{f} }}
	return newPair(t, set, Config{}), f
}

// until makes progress on both ends until ok returns true.
func (p *pair) until(ok func() bool) {
	p.t.Helper()
	testenv.ProgressBoth(p.t, p.w[0], p.w[1], ok)
}

// finish waits for an operation, whose call returned r and err, and returns its result.
func (p *pair) finish(r *Request, err error) error {
	p.t.Helper()
	if r == nil || err != nil {
		return err
	}
	p.until(r.Done)
	return r.take()
}
