package ucp_test

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
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// TestClose_RequestLivesUntilCompletion: CloseForce fails an operation in flight, and the caller releases the
// request. No later operation gets the request, or completes with it, before the transport has completed the operation.
func TestClose_RequestLivesUntilCompletion(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		addr := p.B.Mem.Addr()
		copy(p.B.Mem.Bytes(), []byte{1, 1, 1, 1, 2, 2, 2, 2})
		p.Connect().Warm()
		stays, key := p.A.EP, p.A.Key
		for _, post := range []func() (*ucp.Request, error){
			func() (*ucp.Request, error) { return p.A.EP.Get(make([]byte, 4), addr, p.A.Key, nil) },
			func() (*ucp.Request, error) { return p.A.EP.Get(make([]byte, 9000), addr, p.A.Key, nil) },
			func() (*ucp.Request, error) {
				return p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 0, new(uint64), addr, p.A.Key)
			},
			func() (*ucp.Request, error) {
				return p.A.EP.AtomicFetch(uct.AtomicXor, 4, 0, new(uint64), addr, p.A.Key)
			},
			func() (*ucp.Request, error) { return p.A.EP.Flush() },
		} {
			p.Connect().Warm()
			_, err := p.A.EP.Put([]byte{9}, addr+64, p.A.Key, nil)
			require.NoError(t, err)
			cut, err := post()
			require.NoError(t, err)
			end, err := p.A.EP.Close(ucp.CloseForce)
			require.NoError(t, err)
			if cut != nil {
				cut.Release()
			}
			if end != nil {
				end.Release()
			}
			got := make([]byte, 4)
			require.NoError(t, p.Finish(stays.Get(got, addr+4, key, nil)))
			require.Equal(t, []byte{2, 2, 2, 2}, got)
		}
	})
}

// TestClose_EndsAfterItsOperations: when Close completes, all operations of the EP have completed, and no transport
// uses their buffers.
func TestClose_EndsAfterItsOperations(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	g, err := p.A.EP.Get(make([]byte, 200), p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	r, err := p.A.EP.Put(make([]byte, 9000), p.B.Mem.Addr(), p.A.Key, nil)
	require.NoError(t, err)
	end, err := p.A.EP.Close(ucp.CloseForce)
	require.NoError(t, err)
	require.NotNil(t, end)
	assert.False(t, g.Done(), "it is in flight")
	assert.NoError(t, p.Finish(end, nil))
	assert.True(t, r.Done())
	assert.True(t, g.Done())
	assert.Equal(t, ucs.StatusCanceled, g.Status())
	r.Release()
	g.Release()
}

// TestClose_UnderTraffic closes EPs by force during all operations, at both ends, and checks the results of the
// operations on other EPs.
func TestClose_UnderTraffic(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both().Warm()
		stays, key := p.A.EP, p.A.Key
		rng := rand.New(rand.NewPCG(1, 2))
		const half = tlsets.MemLen / 2
		copy(p.B.Mem.Bytes()[half:], testenv.Pattern(half, 3))
		for range 30 {
			p.Connect()
			var reqs []*ucp.Request
			add := func(r *ucp.Request, err error) {
				require.NoError(t, err)
				if r != nil {
					reqs = append(reqs, r)
				}
			}
			for range 10 {
				n := rng.IntN(9000) + 1
				add(p.A.EP.Put(make([]byte, n), p.B.Mem.Addr()+16, p.A.Key, &ucp.OpParams{}))
				add(p.A.EP.Get(p.A.Mem.Bytes()[:n], p.B.Mem.Addr()+16, p.A.Key, &ucp.OpParams{Mem: p.A.Mem}))
				add(p.A.EP.AtomicFetch(uct.AtomicXor, 4, 1, new(uint64), p.B.Mem.Addr(), p.A.Key))
				if rng.IntN(4) == 0 {
					require.NoError(t, p.A.EP.Fence())
				}
			}
			for range rng.IntN(20) {
				p.Step()
			}
			end, err := p.A.EP.Close(ucp.CloseForce)
			require.NoError(t, err)
			got := make([]byte, 500)
			require.NoError(t, p.Finish(stays.Get(got, p.B.Mem.Addr()+half, key, nil)))
			testenv.RequireBytes(t, testenv.Pattern(half, 3)[:500], got)
			require.NoError(t, p.Finish(end, nil))
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
	}{{"short", 4000, false, false}, {"long", ucp.MaxStaged + 1, false, true}, {"registered", 4000, true, true}} {
		t.Run(tt.name, func(t *testing.T) {
			p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
			p.A.W.LimitBufferWait(1)
			p.Connect().Warm()
			var op *ucp.OpParams
			if tt.mem {
				op = &ucp.OpParams{Mem: p.A.Mem}
			}
			for _, i := range f.Ifaces {
				i.Frozen = true
			}
			buf := p.A.Mem.Bytes()[:tt.n]
			err := p.A.EP.GetWait(overCtx(), buf, p.B.Mem.Addr(), p.A.Key, op)
			require.ErrorIs(t, err, context.Canceled)
			if tt.failed {
				assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrCanceled)
				assert.ErrorContains(t, p.A.EP.Err(), "still uses the buffer")
			} else {
				require.NoError(t, p.A.EP.Err())
			}
			fill := bytes.Repeat([]byte{7}, tt.n)
			copy(buf, fill)
			for _, i := range f.Ifaces {
				i.Frozen = false
			}
			if !tt.failed { // the late data of the canceled get does not affect the next one
				p.B.Mem.Bytes()[0] = 9
				got := make([]byte, 1)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				require.NoError(t, p.A.EP.GetWait(ctx, got, p.B.Mem.Addr(), p.A.Key, nil))
				assert.Equal(t, []byte{9}, got)
			}
			idle(p)
			testenv.RequireBytes(t, fill, buf)
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
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
				cfg := ucppair.FromEnv(t, "TLS="+tls)
				if !zcopy {
					cfg.ZcopyThresh = 1 << 30
				}
				in := x.reachWith(t, cfg)
				in.w.LimitBufferWait(1)
				local, err := in.w.Context().MemAlloc(int(in.key.Len()))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, local.Close()) })
				exercise(in.ctx, t, in.ep, in.key, 1)
				x.signal(t, syscall.SIGSTOP)
				buf := local.Bytes()
				for tries := 0; err == nil && tries < 40; tries++ { // until the sockets are full
					copy(buf, bytes.Repeat([]byte{1}, len(buf)))
					err = in.ep.PutWait(overCtx(), buf, in.key.Addr(), in.key, &ucp.OpParams{Mem: local})
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
