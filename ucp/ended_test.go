package ucp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// TestOnDone: the end of each operation that has returned a request is told once, and that of
// no other.
func TestOnDone(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		pending, told := 0, 0
		params := &OpParams{OnDone: func(err error) { assert.NoError(t, err); told++ }}
		local, key, addr := make([]byte, 20_000), p.a.key, p.b.mem.Addr()
		back, short, long := make([]byte, len(local)), make([]byte, 8), make([]byte, len(local))
		for range 3 {
			for _, op := range []func() (*Request, error){
				func() (*Request, error) { return p.b.w.TagRecv(make([]byte, 8), 1, exact, nil, params) },
				func() (*Request, error) { return p.a.ep.TagSend(1, local[:8], params) },
				func() (*Request, error) { return p.b.w.TagRecv(make([]byte, 100_000), 2, exact, nil, params) },
				func() (*Request, error) { return p.a.ep.TagSend(2, make([]byte, 100_000), params) },
				func() (*Request, error) {
					return p.a.ep.TagSendData(3, Buffers(pieces(local)), params)
				},
				func() (*Request, error) { return p.b.w.TagRecvData(Buffers(pieces(back)), 3, exact, nil, params) },
				func() (*Request, error) { return p.a.ep.Put(local[:8], addr, key, params) },
				func() (*Request, error) { return p.a.ep.Put(local, addr, key, params) },
				func() (*Request, error) { return p.a.ep.Get(short, addr, key, params) },
				func() (*Request, error) { return p.a.ep.Get(long, addr, key, params) },
			} {
				r, err := op()
				require.NoError(t, err)
				if r != nil {
					pending++
					r.Release()
				}
			}
			p.until(func() bool { return told >= pending })
		}
		require.NoError(t, p.flush())
		assert.Equal(t, pending, told)
	})
}

// TestOnDone_Canceled: a callback gets what Wait would return, and may post.
func TestOnDone_Canceled(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		var again *Request
		told := 0
		r, err := p.b.w.TagRecv(nil, 1, exact, nil, &OpParams{OnDone: func(err error) {
			told++
			assert.ErrorIs(t, err, ucs.ErrCanceled)
			again, err = p.b.w.TagRecv(nil, 1, exact, nil, nil)
			assert.NoError(t, err)
		}})
		require.NoError(t, err)
		require.True(t, r.Cancel())
		require.Zero(t, told, "not within Cancel")
		require.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
		p.until(func() bool { return told == 1 })
		require.NoError(t, p.finish(p.a.ep.TagSend(1, nil, nil)))
		require.NoError(t, p.finish(again, nil))
	})
}

// TestOnDone_WorkerCloses: what Close ends is told before it returns.
func TestOnDone_WorkerCloses(t *testing.T) {
	p := newPair(t, fakes("like sm", likeSM()), Config{})
	told := 0
	r, err := p.b.w.TagRecv(nil, 1, exact, nil, &OpParams{OnDone: func(err error) {
		told++
		assert.ErrorIs(t, err, ucs.ErrCanceled)
	}})
	require.NoError(t, err)
	r.Release()
	require.NoError(t, p.b.w.Close())
	require.Equal(t, 1, told)
}

func TestWaitAnyAll(t *testing.T) {
	p := newPair(t, fakes("like sm", likeSM()), Config{}).connect()
	w, ctx := p.b.w, context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	var reqs []*Request
	for i := range 3 {
		r, err := w.TagRecv(nil, uint64(i), exact, nil, nil)
		require.NoError(t, err)
		reqs = append(reqs, r)
	}
	i, err := WaitAny(ended, reqs...)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, -1, i)
	require.ErrorIs(t, WaitAll(ended, reqs...), context.Canceled)

	sent := p.tagSend(1, nil)
	p.until(reqs[1].Done)
	require.NoError(t, p.finish(sent, nil))
	i, err = WaitAny(ctx, reqs...)
	require.NoError(t, err)
	require.Equal(t, 1, i)
	require.True(t, reqs[2].Cancel())
	i, err = WaitAny(ctx, reqs[0], reqs[2])
	require.ErrorIs(t, err, ucs.ErrCanceled)
	require.Equal(t, 1, i)
	i, err = WaitAny(ctx, reqs[0], nil)
	require.NoError(t, err)
	require.Equal(t, 1, i)

	require.True(t, reqs[0].Cancel())
	require.ErrorIs(t, WaitAll(ctx, nil, reqs[0]), ucs.ErrCanceled)
	require.NoError(t, WaitAll(ctx))
	require.NoError(t, WaitAll(ctx, nil))
	_, err = WaitAny(ctx)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)

	a, err := p.a.w.TagRecv(nil, 1, exact, nil, nil)
	require.NoError(t, err)
	b, err := p.b.w.TagRecv(nil, 1, exact, nil, nil)
	require.NoError(t, err)
	_, err = WaitAny(ctx, a, b)
	require.ErrorIs(t, err, ucs.ErrInvalidParam, "of two workers")
	for _, r := range []*Request{a, b} {
		require.True(t, r.Cancel())
		r.Release()
	}
}
