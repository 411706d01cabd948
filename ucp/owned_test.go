package ucp

import (
	"bytes"
	"context"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestClose_RequestLivesUntilCompletion: CloseForce fails an operation in flight, and the caller releases the
// request. No later operation gets the request, or completes with it, before the transport has completed the operation.
func TestClose_RequestLivesUntilCompletion(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		addr := p.b.mem.Addr()
		copy(p.b.mem.Bytes(), []byte{1, 1, 1, 1, 2, 2, 2, 2})
		p.connect().warm()
		stays, key := p.a.ep, p.a.key
		for _, post := range []func() (*Request, error){
			func() (*Request, error) { return p.a.ep.Get(make([]byte, 4), addr, p.a.key, nil) },
			func() (*Request, error) { return p.a.ep.Get(make([]byte, 9000), addr, p.a.key, nil) },
			func() (*Request, error) {
				return p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 0, new(uint64), addr, p.a.key)
			},
			func() (*Request, error) {
				return p.a.ep.AtomicFetch(uct.AtomicXor, 4, 0, new(uint64), addr, p.a.key)
			},
			func() (*Request, error) { return p.a.ep.Flush() },
		} {
			p.connect().warm()
			_, err := p.a.ep.Put([]byte{9}, addr+64, p.a.key, nil)
			require.NoError(t, err)
			cut, err := post()
			require.NoError(t, err)
			end, err := p.a.ep.Close(CloseForce)
			require.NoError(t, err)
			if cut != nil {
				cut.Release()
			}
			if end != nil {
				end.Release()
			}
			got := make([]byte, 4)
			require.NoError(t, p.finish(stays.Get(got, addr+4, key, nil)))
			require.Equal(t, []byte{2, 2, 2, 2}, got)
		}
	})
}

// TestClose_EndsAfterItsOperations: when Close completes, all operations of the EP have completed, and no transport
// uses their buffers.
func TestClose_EndsAfterItsOperations(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.connect().warm()
	g, err := p.a.ep.Get(make([]byte, 200), p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	r, err := p.a.ep.Put(make([]byte, 9000), p.b.mem.Addr(), p.a.key, nil)
	require.NoError(t, err)
	end, err := p.a.ep.Close(CloseForce)
	require.NoError(t, err)
	require.NotNil(t, end)
	assert.False(t, g.Done(), "it is in flight")
	assert.NoError(t, p.finish(end, nil))
	assert.True(t, r.Done())
	assert.True(t, g.Done())
	assert.Equal(t, ucs.StatusCanceled, g.Status())
	r.Release()
	g.Release()
}

// TestClose_UnderTraffic closes EPs by force during all operations, at both ends, and checks the results of the
// operations on other EPs.
func TestClose_UnderTraffic(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.both().warm()
		stays, key := p.a.ep, p.a.key
		rng := rand.New(rand.NewPCG(1, 2))
		const half = memLen / 2
		copy(p.b.mem.Bytes()[half:], pattern(half, 3))
		for range 30 {
			p.connect()
			var reqs []*Request
			add := func(r *Request, err error) {
				require.NoError(t, err)
				if r != nil {
					reqs = append(reqs, r)
				}
			}
			for range 10 {
				n := rng.IntN(9000) + 1
				add(p.a.ep.Put(make([]byte, n), p.b.mem.Addr()+16, p.a.key, &OpParams{}))
				add(p.a.ep.Get(p.a.mem.Bytes()[:n], p.b.mem.Addr()+16, p.a.key, &OpParams{Mem: p.a.mem}))
				add(p.a.ep.AtomicFetch(uct.AtomicXor, 4, 1, new(uint64), p.b.mem.Addr(), p.a.key))
				if rng.IntN(4) == 0 {
					require.NoError(t, p.a.ep.Fence())
				}
			}
			for range rng.IntN(20) {
				p.step()
			}
			end, err := p.a.ep.Close(CloseForce)
			require.NoError(t, err)
			got := make([]byte, 500)
			require.NoError(t, p.finish(stays.Get(got, p.b.mem.Addr()+half, key, nil)))
			requireBytes(t, pattern(half, 3)[:500], got)
			require.NoError(t, p.finish(end, nil))
			for _, r := range reqs {
				require.True(t, r.Done())
				r.Release()
			}
		}
	})
}

// overCtx returns a canceled context.
func overCtx() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestGiveUp_ReturnsTheBuffer: after a canceled get no transport uses the buffer of the caller. A small get does not
// affect the EP. If a transport uses the buffer itself and does not release it, the EP fails.
func TestGiveUp_ReturnsTheBuffer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		n      int
		mem    bool // registered: zcopy
		failed bool
	}{{"short", 4000, false, false}, {"long", maxStaged + 1, false, true}, {"registered", 4000, true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			p, f := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.a.w.bufferWaitLimit = 1
			p.connect().warm()
			var op *OpParams
			if tt.mem {
				op = &OpParams{Mem: p.a.mem}
			}
			for _, i := range f.Ifaces {
				i.Frozen = true
			}
			buf := p.a.mem.Bytes()[:tt.n]
			err := p.a.ep.GetWait(overCtx(), buf, p.b.mem.Addr(), p.a.key, op)
			require.ErrorIs(t, err, context.Canceled)
			if tt.failed {
				assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrCanceled)
				assert.ErrorContains(t, p.a.ep.Err(), "still uses the buffer")
			} else {
				require.NoError(t, p.a.ep.Err())
			}
			fill := bytes.Repeat([]byte{7}, tt.n)
			copy(buf, fill)
			for _, i := range f.Ifaces {
				i.Frozen = false
			}
			if !tt.failed { // the late data of the canceled get does not affect the next one
				p.b.mem.Bytes()[0] = 9
				got := make([]byte, 1)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				require.NoError(t, p.a.ep.GetWait(ctx, got, p.b.mem.Addr(), p.a.key, nil))
				assert.Equal(t, []byte{9}, got)
			}
			p.idle()
			requireBytes(t, fill, buf)
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		})
	}
}

// TestGiveUp_BufferOfAPut: bytes that the caller writes to the buffer of a canceled put never arrive, over each
// transport between processes.
func TestGiveUp_BufferOfAPut(t *testing.T) {
	for _, tls := range tlsets.ProcessSets() {
		for _, zcopy := range []bool{false, true} {
			name := tls + " copied"
			if zcopy {
				name = tls + " not copied"
			}
			t.Run(name, func(t *testing.T) {
				if tls == `\rc` || tls == "all" {
					testenv.SkipShort(t, "shared memory, as with sm")
				}
				x := startTarget(t, tls)
				cfg := fromEnv(t, "TLS="+tls)
				if !zcopy {
					cfg.ZcopyThresh = 1 << 30
				}
				in := x.reachWith(t, cfg)
				in.w.bufferWaitLimit = 1
				local, err := in.w.ctx.MemAlloc(int(in.key.Len()))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, local.Close()) })
				exercise(in.ctx, t, in.ep, in.key, 1)
				x.signal(t, syscall.SIGSTOP)
				buf := local.Bytes()
				for tries := 0; err == nil && tries < 40; tries++ { // until the sockets are full
					copy(buf, bytes.Repeat([]byte{1}, len(buf)))
					err = in.ep.PutWait(overCtx(), buf, in.key.Addr(), in.key, &OpParams{Mem: local})
					copy(buf, bytes.Repeat([]byte{2}, len(buf)))
				}
				if tls == "tcp" {
					require.ErrorIs(t, err, context.Canceled)
				}
				x.signal(t, syscall.SIGCONT)
				again := x.reach(t, tls)
				if in.ep.Err() == nil {
					require.NoError(t, in.ep.FlushWait(in.ctx))
				}
				got := make([]byte, in.key.Len())
				require.NoError(t, again.ep.GetWait(again.ctx, got, again.key.Addr(), again.key, nil))
				assert.Zero(t, bytes.Count(got, []byte{2}))
			})
		}
	}
}
