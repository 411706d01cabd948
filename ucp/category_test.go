package ucp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/wireup"
)

// categoryThreads is how many goroutines use a context in the tests of categories.
const categoryThreads = 3

// server is a worker that a goroutine serves, with memory that others reach.
type server struct {
	ctx     *Context
	w       *Worker
	mem     *Mem
	stop    context.CancelFunc
	serving sync.WaitGroup
}

func serve(t *testing.T, cfg Config) *server {
	t.Helper()
	s := &server{}
	var err error
	s.ctx, err = NewContext(cfg, all.Components()...)
	require.NoError(t, err)
	s.w, err = s.ctx.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	s.mem, err = s.ctx.MemAlloc(memLen)
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

// traffic are the operations by which a goroutine writes and reads its part of the
// memory of a server, each until it has ended.
type traffic struct {
	put, get func(buf []byte, off uint64) error
	flush    func() error
}

// check puts and gets blocks of several sizes in the n-th part of the memory.
func (x traffic) check(t *testing.T, n int) {
	const part = memLen / categoryThreads / 8 * 8
	for round, size := range []int{8, 100, 5000, part} {
		base := uint64(n * part)
		want, got := pattern(size, n+round), make([]byte, size)
		if !assert.NoError(t, x.put(want, base)) || !assert.NoError(t, x.flush()) || !assert.NoError(t, x.get(got, base)) {
			return
		}
		assert.Equal(t, want, got, "thread %d, %d bytes", n, size)
	}
}

// resourcesOf adds up what the verbs contexts of c have.
func resourcesOf(t *testing.T, c *Context) (sum verbs.Resources) {
	t.Helper()
	for _, d := range c.mds {
		if md, is := d.md.(*ib.MD); is {
			r, ok := md.Context().Resources()
			require.True(t, ok)
			sum.Add(r)
		}
	}
	return sum
}

// categoryCase is what n workers take in a category, each with one interface that has a
// QP for its EP, and one with a QP for handshakes.
type categoryCase struct {
	category uct.Endpoints
	contexts int
	tds      int // of an interface
	queues   int // QPs and CQs of an interface
	pages    int // UAR pages in all
}

// categoryTransports are two transports each: for the EPs, and for handshakes.
func categoryTransports() [][]string {
	return [][]string{{Exact("rc"), Exact("ud")}, {"rc_mlx5", "ud_mlx5"}}
}

// contextPages is how many UAR pages a context has from the start.
const contextPages = 8

func categoryCases(n int) []categoryCase {
	return []categoryCase{
		{uct.EndpointsMPIEverywhere, n, 0, 1, n * contextPages},
		{uct.Endpoints2xDynamic, 1, 2, 2, contextPages + 4*n},
		{uct.EndpointsDynamic, 1, 1, 1, contextPages + 2*n},
		{uct.EndpointsSharedDynamic, 1, 1, 1, contextPages + n},
		{uct.EndpointsStatic, 1, 0, 1, contextPages},
	}
}

// Workers of one context, each with its goroutine, in each category: operations work,
// and what they take is what the category says.
func TestCategories_Workers(t *testing.T) {
	for _, tls := range categoryTransports() {
		for _, c := range categoryCases(categoryThreads) {
			t.Run(tls[0]+"/"+c.category.String(), func(t *testing.T) {
				cfg := Config{TLS: config.Allow(tls...), IBEndpoints: c.category}
				s := serve(t, cfg)
				client, err := NewContext(cfg, all.Components()...)
				require.NoError(t, err)
				var workers [categoryThreads]*Worker
				var eps [categoryThreads]*EP
				for i := range workers {
					workers[i], err = client.NewWorker(WorkerConfig{})
					require.NoError(t, err)
					eps[i], err = workers[i].NewEP(s.w.Address(), EPConfig{})
					require.NoError(t, err)
				}
				packed := s.mem.Pack()
				var wg sync.WaitGroup
				for i, ep := range eps {
					wg.Go(func() { overEP(t, ep, packed).check(t, i) })
				}
				wg.Wait()
				r := resourcesOf(t, client)
				const ifaces = 2 * categoryThreads
				assert.Equal(t, [5]int{c.contexts, ifaces * c.tds, ifaces * c.queues, ifaces * c.queues, c.pages},
					[5]int{r.Contexts, r.TDs, r.QPs, r.CQs, r.UARPages})
				for _, w := range workers {
					require.NoError(t, w.Close())
				}
				require.NoError(t, client.Close())
			})
		}
	}
}

// overEP are the blocking operations of an EP.
func overEP(t *testing.T, ep *EP, packed []byte) (x traffic) {
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

// Threads of category MPI+threads share a worker, which is the only one.
func TestCategories_MPIThreads(t *testing.T) {
	for _, tls := range categoryTransports() {
		t.Run(tls[0], func(t *testing.T) {
			cfg := Config{TLS: config.Allow(tls...), IBEndpoints: uct.EndpointsMPIThreads}
			s := serve(t, cfg)
			client, err := NewContext(cfg, all.Components()...)
			require.NoError(t, err)
			w, err := client.NewWorker(WorkerConfig{})
			require.NoError(t, err)
			_, err = client.NewWorker(WorkerConfig{})
			require.ErrorIs(t, err, ucs.ErrBusy)
			assert.ErrorContains(t, err, "take turns")
			ep, err := w.NewEP(s.w.Address(), EPConfig{})
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

// overShared are the operations of an EP whose worker is shared.
func overShared(s *SharedWorker, ep *EP, key *RKey) (x traffic) {
	run := func(start func() (*Request, error)) error { return s.Run(context.Background(), start) }
	x.put = func(b []byte, off uint64) error {
		return run(func() (*Request, error) { return ep.Put(b, key.Addr()+off, key, nil) })
	}
	x.get = func(b []byte, off uint64) error {
		return run(func() (*Request, error) { return ep.Get(b, key.Addr()+off, key, nil) })
	}
	x.flush = func() error { return run(ep.Flush) }
	return x
}

func TestSharedWorker_GivesUp(t *testing.T) {
	p := newPair(t, fakes("like tcp", likeTCP()), Config{})
	p.connect()
	ctx, stop := context.WithCancel(context.Background())
	stop()
	s := p.a.w.Share()
	got := make([]byte, 8)
	err := s.Run(ctx, func() (*Request, error) { return p.a.ep.Get(got, p.b.mem.Addr(), p.a.key, nil) })
	if err != nil { // else it was done at once
		assert.ErrorIs(t, err, context.Canceled)
	}
	s.Do(func(w *Worker) { assert.Same(t, p.a.w, w) })
}

// With MPI-everywhere every worker reaches, and is reached in, memory of the context,
// whether it was registered before the worker was made or after.
func TestMPIEverywhere_Memory(t *testing.T) {
	cfg := Config{TLS: config.Allow(Exact("rc")), IBEndpoints: uct.EndpointsMPIEverywhere}
	c, err := NewContext(cfg, all.Components()...)
	require.NoError(t, err)
	buf := make([]byte, memLen)
	early, err := c.MemMap(buf)
	require.NoError(t, err)
	packedEarly := early.Pack()
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	var targets [2]*Worker
	for i := range targets {
		targets[i], err = c.NewWorker(WorkerConfig{})
		require.NoError(t, err)
	}
	late, err := c.MemAlloc(memLen)
	require.NoError(t, err)
	w, err := c.NewWorker(WorkerConfig{}) // the last, and in the same context
	require.NoError(t, err)
	assert.Equal(t, 3, resourcesOf(t, c).Contexts)
	for _, target := range targets {
		serving.Go(func() { _ = target.Serve(ctx) })
	}
	for i, target := range targets {
		ep, err := w.NewEP(target.Address(), EPConfig{})
		require.NoError(t, err)
		for _, m := range []*Mem{early, late} {
			key, err := ep.Unpack(m.Pack())
			require.NoError(t, err)
			// Long enough to go without a copy, from memory that is registered with
			// the domain of w.
			local := late
			if m == late {
				local = early
			}
			const n = 20000
			want := pattern(n, i)
			copy(local.Bytes(), want)
			require.NoError(t, ep.PutWait(ctx, local.Bytes()[:n], key.Addr()+n, key, &OpParams{Mem: local}))
			require.NoError(t, ep.FlushWait(ctx))
			requireBytes(t, want, m.Bytes()[n:2*n])
			key.Close()
		}
		_, err = ep.Unpack(packedEarly)
		if i == 1 { // that worker came after the key
			assert.ErrorIs(t, err, ucs.ErrInvalidRKey)
			assert.ErrorContains(t, err, "when the key was packed")
		}
		assert.Contains(t, ep.Explain(), "MPI-everywhere")
	}
	stop()
	serving.Wait()
	for _, x := range []*Worker{w, targets[0], targets[1]} {
		require.NoError(t, x.Close())
	}
	again, err := c.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	assert.Equal(t, 3, resourcesOf(t, c).Contexts, "the domain of a closed worker is used again")
	require.NoError(t, again.Close())
	require.NoError(t, early.Close())
	require.NoError(t, late.Close())
	require.NoError(t, c.Close())
}

// Memory is made and closed while workers come and go.
func TestMPIEverywhere_Concurrent(t *testing.T) {
	cfg := Config{TLS: config.Allow(Exact("ud")), IBEndpoints: uct.EndpointsMPIEverywhere}
	c, err := NewContext(cfg, all.Components()...)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range categoryThreads {
		wg.Go(func() {
			for range 10 {
				w, err := c.NewWorker(WorkerConfig{})
				if assert.NoError(t, err) {
					assert.NoError(t, w.Close())
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				m, err := c.MemAlloc(4096)
				if assert.NoError(t, err) {
					assert.NotEmpty(t, m.Pack())
					assert.NoError(t, m.Close())
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close())
}

// GUCX_IB_ENDPOINTS, and what it says where it is wrong.
func TestCategories_Config(t *testing.T) {
	assert.Equal(t, uct.EndpointsSharedDynamic, fromEnv(t, "IB_ENDPOINTS=shareddynamic").IBEndpoints)
	var cfg Config
	err := config.FromEnv([]string{"GUCX_IB_ENDPOINTS=mine"}, cfg.Table())
	assert.ErrorContains(t, err, "MPI-everywhere, 2xDynamic")
	assert.ErrorIs(t, (&Config{IBEndpoints: 9}).Validate(), ucs.ErrInvalidParam)
}

// Transports without a device to share do not look at the category.
func TestCategories_OtherTransports(t *testing.T) {
	for e := uct.EndpointsMPIEverywhere; e.Valid(); e++ {
		c, err := NewContext(Config{TLS: config.Allow("sm", "self", "tcp"), IBEndpoints: e}, all.Components()...)
		require.NoError(t, err)
		var workers []*Worker
		for range 2 {
			w, err := c.NewWorker(WorkerConfig{})
			require.NoError(t, err, fmt.Sprint(e))
			workers = append(workers, w)
		}
		for _, w := range workers {
			require.NoError(t, w.Close())
		}
		require.NoError(t, c.Close())
	}
}

// oneDevice is the component of a loop device, with ud only.
func oneDevice(t *testing.T) uct.Component {
	t.Helper()
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
	require.NoError(t, err)
	return ib.New(func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }, ud.Transport(ud.Config{}))
}

func TestMPIEverywhere_TooManyWorkers(t *testing.T) {
	c, err := NewContext(Config{IBEndpoints: uct.EndpointsMPIEverywhere}, oneDevice(t))
	require.NoError(t, err)
	var workers []*Worker
	for range wireup.MaxMDs {
		w, err := c.NewWorker(WorkerConfig{})
		require.NoError(t, err)
		workers = append(workers, w)
	}
	_, err = c.NewWorker(WorkerConfig{})
	require.ErrorIs(t, err, ucs.ErrTooLong)
	assert.ErrorContains(t, err, "another category or several contexts")
	for _, w := range workers {
		require.NoError(t, w.Close())
	}
	require.NoError(t, c.Close())
}

// reluctant opens domains of which only the first registers memory more than once.
type reluctant struct {
	uct.Component
	opened int
}

func (r *reluctant) OpenMD(name string) (uct.MD, error) {
	md, err := r.Component.OpenMD(name)
	if r.opened++; r.opened == 1 || err != nil {
		return md, err
	}
	return &onceMD{MD: md.(*ib.MD)}, nil
}

type onceMD struct {
	*ib.MD
	done bool
}

var errOnce = errors.New("no more memory")

func (m *onceMD) Reg(buf []byte, access uct.Access) (uct.Mem, error) {
	if m.done {
		return nil, errOnce
	}
	m.done = true
	return m.MD.Reg(buf, access)
}

// A worker whose domain does not take all memory of the context is not made, and
// leaves nothing behind.
func TestMPIEverywhere_RefusedMemory(t *testing.T) {
	c, err := NewContext(Config{IBEndpoints: uct.EndpointsMPIEverywhere}, &reluctant{Component: oneDevice(t)})
	require.NoError(t, err)
	first, err := c.NewWorker(WorkerConfig{})
	require.NoError(t, err)
	var mems []*Mem
	var keys [][]byte
	for range 2 {
		m, err := c.MemAlloc(64)
		require.NoError(t, err)
		mems = append(mems, m)
		keys = append(keys, m.Pack())
	}
	_, err = c.NewWorker(WorkerConfig{})
	require.ErrorIs(t, err, errOnce)
	assert.Len(t, c.mds, 1)
	for i, m := range mems {
		assert.Equal(t, keys[i], m.Pack())
	}
	require.NoError(t, mems[0].Close())
	second, err := c.NewWorker(WorkerConfig{})
	require.NoError(t, err, "one registration is possible")
	assert.Equal(t, []int{1}, second.seat.number)
	require.NoError(t, mems[1].Close())
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	require.NoError(t, c.Close())
}
