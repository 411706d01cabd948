package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/invariants"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// TestRequest_Nil: the result of an operation that has completed in its call is success.
func TestRequest_Nil(t *testing.T) {
	var r *ucp.Request
	assert.True(t, r.Done())
	assert.Equal(t, ucs.StatusOK, r.Status())
	done, err := r.Test()
	assert.True(t, done)
	assert.NoError(t, err)
	assert.NoError(t, r.Wait(context.Background()))
	assert.False(t, r.Cancel())
	r.GiveUp()
	r.Release()
}

// TestRequest_Released: using a released request is an error, not a wait.
func TestRequest_Released(t *testing.T) {
	p := ucppair.New(t, fakes("like sm"), ucp.Config{})
	r, err := p.A.W.TagRecv(make([]byte, 8), 1, exact, nil, nil)
	require.NoError(t, err)
	require.True(t, r.Cancel())
	require.ErrorIs(t, r.Wait(t.Context()), ucs.ErrCanceled)

	const text = "ucp: request: invalid parameter: it was released already"
	assert.EqualError(t, r.Wait(t.Context()), text)
	done, err := r.Test()
	assert.True(t, done)
	assert.EqualError(t, err, text)
	i, err := ucp.WaitAny(t.Context(), r)
	assert.Zero(t, i)
	assert.EqualError(t, err, text)
	assert.EqualError(t, ucp.WaitAll(t.Context(), r, nil), text)
	assert.True(t, r.Done())
	assert.Equal(t, ucs.StatusInvalidParam, r.Status())
	assert.False(t, r.Cancel())
	if invariants.Enabled {
		assert.Panics(t, r.Release)
		assert.Panics(t, r.GiveUp)
		return
	}
	r.Release()
	r.GiveUp()

	var rs [64]*ucp.Request // twice the growth of the pool
	seen := map[*ucp.Request]bool{}
	for i := range rs {
		rs[i], err = p.A.W.TagRecv(make([]byte, 8), uint64(i), exact, nil, nil)
		require.NoError(t, err)
		assert.False(t, seen[rs[i]], "the pool has it twice")
		seen[rs[i]] = true
		require.True(t, rs[i].Cancel())
	}
	for _, r := range rs {
		r.Release()
	}
}

// TestWaitAny_Errors: invalid calls return an error.
func TestWaitAny_Errors(t *testing.T) {
	p := ucppair.New(t, fakes("like sm"), ucp.Config{})
	_, err := ucp.WaitAny(t.Context())
	assert.EqualError(t, err, "ucp: wait for any: invalid parameter: there are no requests")
	a, err := p.A.W.TagRecv(make([]byte, 8), 1, exact, nil, nil)
	require.NoError(t, err)
	b, err := p.B.W.TagRecv(make([]byte, 8), 1, exact, nil, nil)
	require.NoError(t, err)
	assert.EqualError(t, ucp.WaitAll(t.Context(), a, b), "ucp: wait: invalid parameter: the requests are of several workers")
	for _, r := range []*ucp.Request{a, b} {
		require.True(t, r.Cancel())
		r.Release()
	}
}
