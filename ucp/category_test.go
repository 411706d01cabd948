package ucp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// categoryThreads is the number of goroutines that use a context in the tests of categories.
const categoryThreads = 3

// server is a worker that a goroutine serves, with memory that peers access.
type server struct {
	ctx     *ucp.Context
	w       *ucp.Worker
	mem     *ucp.Mem
	stop    context.CancelFunc
	serving sync.WaitGroup
}

func serve(t *testing.T, cfg ucp.Config, comps []uct.Component) *server {
	t.Helper()
	s := &server{}
	var err error
	s.ctx, err = ucp.NewContext(cfg, comps...)
	require.NoError(t, err)
	s.w, err = s.ctx.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	s.mem, err = s.ctx.MemAlloc(tlsets.MemLen)
	require.NoError(t, err)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.serving.Go(func() { _ = s.w.Serve(ctx) })
	t.Cleanup(func() {
		s.stop()
		s.serving.Wait()
		require.NoError(t, s.w.Close())
		require.NoError(t, s.mem.Close())
		require.NoError(t, s.ctx.Close())
	})
	return s
}

// traffic is the operations by which a goroutine writes and reads its part of the memory of a server. Each returns when
// it has completed.
type traffic struct {
	put, get func(buf []byte, off uint64) error
	flush    func() error
}

// check puts and gets blocks of several sizes in the n-th part of the memory.
func (x traffic) check(t *testing.T, n int) {
	const part = tlsets.MemLen / categoryThreads / 8 * 8
	for round, size := range []int{8, 100, 5000, part} {
		base := uint64(n * part)
		want, got := testenv.Pattern(size, n+round), make([]byte, size)
		if !assert.NoError(t, x.put(want, base)) || !assert.NoError(t, x.flush()) || !assert.NoError(t, x.get(got, base)) {
			return
		}
		assert.Equal(t, want, got, "thread %d, %d bytes", n, size)
	}
}

// resourcesOf returns the sum of the resources of the verbs contexts.
func resourcesOf(t *testing.T, all ...*ucp.Context) (sum verbs.Resources) {
	t.Helper()
	for _, c := range all {
		for _, d := range c.Memory().Domains {
			if md, is := d.MD.(*ib.MD); is {
				r, ok := md.Context().Resources()
				require.True(t, ok)
				sum.Add(r)
			}
		}
	}
	return sum
}

// inCategory returns all transports, with devices in a category of endpoints.
func inCategory(e ib.Endpoints) []uct.Component {
	return tlsets.Components(all.Config{IB: ib.Config{Endpoints: e}})
}

// categoryCase is the resources of n workers in a category. Each worker has one interface with a QP for its EP, and one
// with a QP for handshakes.
type categoryCase struct {
	category ib.Endpoints
	contexts int
	tds      int // of each interface
	queues   int // QPs and CQs of each interface
	pages    int // UAR pages in total
}

// categoryTransports are two transports each: for the EPs, and for handshakes.
func categoryTransports() [][]string {
	return [][]string{{ucp.Exact("rc"), ucp.Exact("ud")}, {"rc_mlx5", "ud_mlx5"}}
}

// contextPages is the number of UAR pages of a new context.
const contextPages = 8

func categoryCases(n int) []categoryCase {
	return []categoryCase{
		{ib.EndpointsMPIEverywhere, n, 0, 1, n * contextPages},
		{ib.Endpoints2xDynamic, 1, 2, 2, contextPages + 4*n},
		{ib.EndpointsDynamic, 1, 1, 1, contextPages + 2*n},
		{ib.EndpointsSharedDynamic, 1, 1, 1, contextPages + n},
		{ib.EndpointsStatic, 1, 0, 1, contextPages},
	}
}

// TestCategories_Workers: threads with a worker each, in each category. Operations work, and the resources are those of
// the category. With MPI-everywhere each thread has its own context.
func TestCategories_Workers(t *testing.T) {
	for _, tls := range categoryTransports() {
		for _, c := range categoryCases(categoryThreads) {
			t.Run(tls[0]+"/"+c.category.String(), func(t *testing.T) {
				cfg := ucp.Config{TLS: config.Allow(tls...)}
				s := serve(t, cfg, inCategory(c.category))
				var clients []*ucp.Context
				var workers [categoryThreads]*ucp.Worker
				var eps [categoryThreads]*ucp.EP
				for i := range workers {
					if i == 0 || c.category == ib.EndpointsMPIEverywhere {
						client, err := ucp.NewContext(cfg, inCategory(c.category)...)
						require.NoError(t, err)
						clients = append(clients, client)
					}
					var err error
					workers[i], err = clients[len(clients)-1].NewWorker(ucp.WorkerConfig{})
					require.NoError(t, err)
					eps[i], err = workers[i].NewEP(s.w.Address(), ucp.EPConfig{})
					require.NoError(t, err)
				}
				packed := s.mem.Pack()
				var wg sync.WaitGroup
				for i, ep := range eps {
					wg.Go(func() { overEP(t, ep, packed).check(t, i) })
				}
				wg.Wait()
				r := resourcesOf(t, clients...)
				const ifaces = 2 * categoryThreads
				assert.Equal(t, [5]int{c.contexts, ifaces * c.tds, ifaces * c.queues, ifaces * c.queues, c.pages},
					[5]int{r.Contexts, r.TDs, r.QPs, r.CQs, r.UARPages})
				for _, w := range workers {
					require.NoError(t, w.Close())
				}
				for _, client := range clients {
					require.NoError(t, client.Close())
				}
			})
		}
	}
}

// overEP returns the blocking operations of an EP.
func overEP(t *testing.T, ep *ucp.EP, packed []byte) (x traffic) {
	ctx := context.Background()
	key, err := ep.Unpack(packed)
	if !assert.NoError(t, err) {
		return
	}
	x.put = func(b []byte, off uint64) error { return ep.PutWait(ctx, b, key.Addr()+off, key, nil) }
	x.get = func(b []byte, off uint64) error { return ep.GetWait(ctx, b, key.Addr()+off, key, nil) }
	x.flush = func() error { return ep.FlushWait(ctx) }
	return x
}

// TestCategories_MPIThreads: threads of category MPI+threads share the only worker.
func TestCategories_MPIThreads(t *testing.T) {
	for _, tls := range categoryTransports() {
		t.Run(tls[0], func(t *testing.T) {
			cfg := ucp.Config{TLS: config.Allow(tls...)}
			s := serve(t, cfg, inCategory(ib.EndpointsMPIThreads))
			client, err := ucp.NewContext(cfg, inCategory(ib.EndpointsMPIThreads)...)
			require.NoError(t, err)
			w, err := client.NewWorker(ucp.WorkerConfig{})
			require.NoError(t, err)
			_, err = client.NewWorker(ucp.WorkerConfig{})
			require.ErrorIs(t, err, ucs.ErrBusy)
			assert.ErrorContains(t, err, "take turns")
			ep, err := w.NewEP(s.w.Address(), ucp.EPConfig{})
			require.NoError(t, err)
			key, err := ep.Unpack(s.mem.Pack())
			require.NoError(t, err)
			shared := w.Share()
			var wg sync.WaitGroup
			for i := range categoryThreads {
				wg.Go(func() { overShared(shared, ep, key).check(t, i) })
			}
			wg.Wait()
			r := resourcesOf(t, client)
			assert.Equal(t, [5]int{1, 0, 2, 2, contextPages}, [5]int{r.Contexts, r.TDs, r.QPs, r.CQs, r.UARPages})
			require.NoError(t, w.Close())
			require.NoError(t, client.Close())
		})
	}
}

// overShared returns the operations of an EP whose worker is shared.
func overShared(s *ucp.SharedWorker, ep *ucp.EP, key *ucp.RKey) (x traffic) {
	run := func(start func() (*ucp.Request, error)) error { return s.Run(context.Background(), start) }
	x.put = func(b []byte, off uint64) error {
		return run(func() (*ucp.Request, error) { return ep.Put(b, key.Addr()+off, key, nil) })
	}
	x.get = func(b []byte, off uint64) error {
		return run(func() (*ucp.Request, error) { return ep.Get(b, key.Addr()+off, key, nil) })
	}
	x.flush = func() error { return run(ep.Flush) }
	return x
}

func TestSharedWorker_ContextCanceled(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like tcp", faketp.LikeTCP()), ucp.Config{})
	p.Connect()
	ctx, stop := context.WithCancel(context.Background())
	stop()
	s := p.A.W.Share()
	got := make([]byte, 8)
	err := s.Run(ctx, func() (*ucp.Request, error) { return p.A.EP.Get(got, p.B.Mem.Addr(), p.A.Key, nil) })
	if err != nil { // otherwise it has completed at once
		assert.ErrorIs(t, err, context.Canceled)
	}
	s.Do(func(w *ucp.Worker) { assert.Same(t, p.A.W, w) })
}

// TestMPIEverywhere_SecondWorker: with MPI-everywhere a context rejects a second worker with advice, and leaks nothing.
func TestMPIEverywhere_SecondWorker(t *testing.T) {
	c, err := ucp.NewContext(ucp.Config{TLS: config.Allow("ud")}, inCategory(ib.EndpointsMPIEverywhere)...)
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	before := resourcesOf(t, c)
	_, err = c.NewWorker(ucp.WorkerConfig{})
	require.ErrorIs(t, err, ucs.ErrBusy)
	assert.ErrorContains(t, err, "a Context for each")
	assert.Equal(t, before, resourcesOf(t, c))
	require.NoError(t, w.Close())
	w, err = c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err, "a worker replaces a closed one")
	require.NoError(t, w.Close())
	require.NoError(t, c.Close())
}

// TestCategories_OtherTransports: transports without a shared device ignore the category.
func TestCategories_OtherTransports(t *testing.T) {
	for e := ib.EndpointsMPIEverywhere; e.Valid(); e++ {
		c, err := ucp.NewContext(ucp.Config{TLS: config.Allow("sm", "self", "tcp")}, inCategory(e)...)
		require.NoError(t, err)
		var workers []*ucp.Worker
		for range 2 {
			w, err := c.NewWorker(ucp.WorkerConfig{})
			require.NoError(t, err, fmt.Sprint(e))
			workers = append(workers, w)
		}
		for _, w := range workers {
			require.NoError(t, w.Close())
		}
		require.NoError(t, c.Close())
	}
}
