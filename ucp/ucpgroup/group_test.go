package ucpgroup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct/all"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// sets are the transports of ranks.
var sets = []string{"sm", "tcp", `\rc`}

// overAll runs f with each set of transports.
func overAll(t *testing.T, f func(t *testing.T, tls string)) {
	for _, tls := range sets {
		t.Run(tls, func(t *testing.T) { f(t, tls) })
	}
}

// openContext opens a context with some transports.
func openContext(t testing.TB, tls string) *ucp.Context { return openContextWith(t, ucp.Config{}, tls) }

// openContextWith is openContext with a configuration.
func openContextWith(t testing.TB, cfg ucp.Config, tls string) *ucp.Context {
	t.Helper()
	require.NoError(t, cfg.TLS.UnmarshalText([]byte(tls)))
	c, err := ucp.NewContext(cfg, all.Components()...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// openWorkers opens n workers, which are closed when the test ends.
func openWorkers(t testing.TB, tls string, n int) []*ucp.Worker {
	return workersOf(t, openContext(t, tls), n)
}

// workersOf opens n workers of a context, which are closed with the test.
func workersOf(t testing.TB, c *ucp.Context, n int) []*ucp.Worker {
	t.Helper()
	list := make([]*ucp.Worker, n)
	for i := range list {
		w, err := c.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, w.Close()) })
		list[i] = w
	}
	return list
}

// ranks runs f in a goroutine for each of n ranks. A rank whose f has succeeded leaves the group. It returns the error
// of the first rank that has failed.
func ranks(t testing.TB, tls string, n int, f func(ctx context.Context, g *Group) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Watchdog)
	defer cancel()
	workers, boots := openWorkers(t, tls, n), InProcess(n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for q := range n {
		wait.Go(func() { errs[q] = oneRank(ctx, workers[q], boots[q], f) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func oneRank(ctx context.Context, w *ucp.Worker, b Bootstrap, f func(ctx context.Context, g *Group) error) error {
	g, err := New(ctx, w, b)
	if err != nil {
		return err
	}
	err = f(ctx, g)
	if err != nil {
		g.Abort(err)
	}
	errClose := g.Close(ctx)
	if err != nil {
		return err
	}
	return errors.Join(errClose, b.Close())
}

// steps is n ranks in one goroutine, which makes progress for all.
type stepped struct {
	t      testing.TB
	groups []*Group
}

func newStepped(t testing.TB, tls string, n int) *stepped {
	return steppedOf(t, openWorkers(t, tls, n))
}

// steppedOf is newStepped with the workers of the ranks.
func steppedOf(t testing.TB, workers []*ucp.Worker) *stepped {
	x := &stepped{t: t}
	addrs := make([][]byte, len(workers))
	for q, w := range workers {
		addrs[q] = w.Address()
	}
	for q, w := range workers {
		g, err := Connect(w, q, addrs)
		require.NoError(t, err)
		x.groups = append(x.groups, g)
	}
	return x
}

// until makes progress for all ranks until done returns true.
func (x *stepped) until(done func() bool) {
	x.t.Helper()
	testenv.ProgressWithin(x.t, testenv.Watchdog, func() bool {
		for _, g := range x.groups {
			g.Progress()
		}
		return done()
	})
}

// ended waits for the requests, and returns the result.
func (x *stepped) ended(reqs ...*Request) error {
	x.t.Helper()
	x.until(func() bool {
		for _, r := range reqs {
			if !r.Done() {
				return false
			}
		}
		return true
	})
	var errs []error
	for _, r := range reqs {
		_, err := r.take()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func TestGroup_Ring(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		const n = 5
		require.NoError(t, ranks(t, tls, n, func(ctx context.Context, g *Group) error {
			c := g.World()
			token := []byte{byte(c.Rank())}
			for range 3 * n {
				in := make([]byte, 1)
				st, err := c.Sendrecv(ctx, (c.Rank()+1)%n, 7, token, (c.Rank()+n-1)%n, AnyTag, in)
				if err != nil {
					return err
				}
				if st != (Status{Source: (c.Rank() + n - 1) % n, Tag: 7, Len: 1}) {
					return errors.New("wrong status")
				}
				token = in
			}
			if token[0] != byte(c.Rank()) {
				return errors.New("the token has not come around")
			}
			return nil
		}))
	})
}

func TestGroup_Barrier(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		for _, n := range []int{1, 2, 3, 6} {
			require.NoError(t, ranks(t, tls, n, func(ctx context.Context, g *Group) error {
				for range 50 {
					if err := g.World().Barrier(ctx); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	})
}

// TestBarrier_Late: no rank completes a barrier before the last one has started it.
func TestBarrier_Late(t *testing.T) {
	x := newStepped(t, "sm", 5)
	for late := range x.groups {
		var reqs []*Request
		for q, g := range x.groups {
			if q == late {
				continue
			}
			r, err := g.World().Ibarrier()
			require.NoError(t, err)
			reqs = append(reqs, r)
		}
		for range 1000 {
			for _, g := range x.groups {
				g.Progress()
			}
		}
		for _, r := range reqs {
			require.False(t, r.Done())
		}
		r, err := x.groups[late].World().Ibarrier()
		require.NoError(t, err)
		require.NoError(t, x.ended(append(reqs, r)...))
	}
}

func TestAllreduce_Ranks(t *testing.T) {
	testenv.SkipRace(t, "one goroutine has all ranks")
	testenv.NeedDescriptors(t, 2000)
	for _, n := range []int{1, 2, 3, 4, 5, 8, 11} {
		x := newStepped(t, "sm", n)
		for _, count := range []int{0, 1, 7, 256, 257, 3000, 70_000} {
			reqs, results := make([]*Request, n), make([][]int64, n)
			for q, g := range x.groups {
				mine := make([]int64, count)
				for i := range mine {
					mine[i] = int64(i*(q+3) + q)
				}
				results[q] = make([]int64, count)
				var err error
				reqs[q], err = Iallreduce(g.World(), mine, results[q], Sum[int64])
				require.NoError(t, err)
			}
			require.NoError(t, x.ended(reqs...))
			want := make([]int64, count)
			for i := range want {
				for q := range n {
					want[i] += int64(i*(q+3) + q)
				}
			}
			for q := range n {
				require.True(t, slices.Equal(want, results[q]), "%d ranks, %d numbers, rank %d", n, count, q)
			}
		}
	}
}
