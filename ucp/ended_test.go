package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestOnDone: OnDone is called once for each operation that has returned a request, and for no other operation.
func TestOnDone(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		pending, completed := 0, 0
		params := &ucp.OpParams{OnDone: func(err error) { assert.NoError(t, err); completed++ }}
		local, key, addr := make([]byte, 20_000), p.A.Key, p.B.Mem.Addr()
		back, short, long := make([]byte, len(local)), make([]byte, 8), make([]byte, len(local))
		for range 3 {
			for _, op := range []func() (*ucp.Request, error){
				func() (*ucp.Request, error) { return p.B.W.TagRecv(make([]byte, 8), 1, exact, nil, params) },
				func() (*ucp.Request, error) { return p.A.EP.TagSend(1, local[:8], params) },
				func() (*ucp.Request, error) { return p.B.W.TagRecv(make([]byte, 100_000), 2, exact, nil, params) },
				func() (*ucp.Request, error) { return p.A.EP.TagSend(2, make([]byte, 100_000), params) },
				func() (*ucp.Request, error) {
					return p.A.EP.TagSendData(3, ucp.Buffers(inPieces(local)), params)
				},
				func() (*ucp.Request, error) {
					return p.B.W.TagRecvData(ucp.Buffers(inPieces(back)), 3, exact, nil, params)
				},
				func() (*ucp.Request, error) { return p.A.EP.Put(local[:8], addr, key, params) },
				func() (*ucp.Request, error) { return p.A.EP.Put(local, addr, key, params) },
				func() (*ucp.Request, error) { return p.A.EP.Get(short, addr, key, params) },
				func() (*ucp.Request, error) { return p.A.EP.Get(long, addr, key, params) },
			} {
				r, err := op()
				require.NoError(t, err)
				if r != nil {
					pending++
					r.Release()
				}
			}
			p.Until(func() bool { return completed >= pending })
		}
		require.NoError(t, p.Flush())
		assert.Equal(t, pending, completed)
	})
}

// TestOnDone_Canceled: the callback gets the error that Wait would return, and may post.
func TestOnDone_Canceled(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		var again *ucp.Request
		completed := 0
		r, err := p.B.W.TagRecv(nil, 1, exact, nil, &ucp.OpParams{OnDone: func(err error) {
			completed++
			assert.ErrorIs(t, err, ucs.ErrCanceled)
			again, err = p.B.W.TagRecv(nil, 1, exact, nil, nil)
			assert.NoError(t, err)
		}})
		require.NoError(t, err)
		require.True(t, r.Cancel())
		require.Zero(t, completed, "not within Cancel")
		require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		p.Until(func() bool { return completed == 1 })
		require.NoError(t, p.Finish(p.A.EP.TagSend(1, nil, nil)))
		require.NoError(t, p.Finish(again, nil))
	})
}

// TestOnDone_WorkerCloses: Close calls OnDone of all operations before it returns.
func TestOnDone_WorkerCloses(t *testing.T) {
	p := ucppair.New(t, fakes("like sm"), ucp.Config{})
	completed := 0
	r, err := p.B.W.TagRecv(nil, 1, exact, nil, &ucp.OpParams{OnDone: func(err error) {
		completed++
		assert.ErrorIs(t, err, ucs.ErrCanceled)
	}})
	require.NoError(t, err)
	r.Release()
	require.NoError(t, p.B.W.Close())
	require.Equal(t, 1, completed)
}

func TestWaitAnyAll(t *testing.T) {
	p := ucppair.New(t, fakes("like sm"), ucp.Config{}).Connect()
	w, ctx := p.B.W, context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	var reqs []*ucp.Request
	for i := range 3 {
		r, err := w.TagRecv(nil, uint64(i), exact, nil, nil)
		require.NoError(t, err)
		reqs = append(reqs, r)
	}
	i, err := ucp.WaitAny(ended, reqs...)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, -1, i)
	require.ErrorIs(t, ucp.WaitAll(ended, reqs...), context.Canceled)

	sent, err := p.A.EP.TagSend(1, nil, nil)
	require.NoError(t, err)
	p.Until(reqs[1].Done)
	require.NoError(t, p.Finish(sent, nil))
	i, err = ucp.WaitAny(ctx, reqs...)
	require.NoError(t, err)
	require.Equal(t, 1, i)
	require.True(t, reqs[2].Cancel())
	i, err = ucp.WaitAny(ctx, reqs[0], reqs[2])
	require.ErrorIs(t, err, ucs.ErrCanceled)
	require.Equal(t, 1, i)
	i, err = ucp.WaitAny(ctx, reqs[0], nil)
	require.NoError(t, err)
	require.Equal(t, 1, i)

	require.True(t, reqs[0].Cancel())
	require.ErrorIs(t, ucp.WaitAll(ctx, nil, reqs[0]), ucs.ErrCanceled)
	require.NoError(t, ucp.WaitAll(ctx))
	require.NoError(t, ucp.WaitAll(ctx, nil))
	_, err = ucp.WaitAny(ctx)
	require.ErrorIs(t, err, ucs.ErrInvalidParam)

	a, err := p.A.W.TagRecv(nil, 1, exact, nil, nil)
	require.NoError(t, err)
	b, err := p.B.W.TagRecv(nil, 1, exact, nil, nil)
	require.NoError(t, err)
	_, err = ucp.WaitAny(ctx, a, b)
	require.ErrorIs(t, err, ucs.ErrInvalidParam, "of two workers")
	for _, r := range []*ucp.Request{a, b} {
		require.True(t, r.Cancel())
		r.Release()
	}
}

// inPieces returns b as a list of pieces, some of them empty.
func inPieces(b []byte) (list [][]byte) {
	for n := 3; len(b) > 0; n = n*2 + 1 {
		n = min(n, len(b))
		list = append(list, b[:n], nil)
		b = b[n:]
	}
	return list
}
