package ucpgroup

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// TestGroup_StoppedRank: what is under way to a rank that is stopped ends when the group has
// failed, though that rank is not told.
func TestGroup_StoppedRank(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 3)
		require.NoError(t, x.connected())
		a, all := x.groups[0], x.groups
		for _, g := range all {
			g.waits = time.Hour // what a slow machine takes does not end it
		}
		out, err := a.World().IsendSync(2, 1, make([]byte, 1<<20), nil)
		require.NoError(t, err)
		x.groups = all[:2] // the last one is stopped
		for range 100 {
			a.Progress()
		}
		all[1].Abort(ucs.ErrCanceled)
		x.until(func() bool { return a.hangDue })
		for range 100 {
			a.Progress()
		}
		require.False(t, out.Done(), "rank 2 may still be told")
		for _, g := range all {
			g.waits = 0
		}
		var gone *RankError
		require.ErrorAs(t, x.ended(out), &gone)
		assert.Equal(t, 1, gone.Rank)
	})
}

// TestCollective_Refused: a parameter that one rank gets wrong ends the operation on all, with the
// reason.
func TestCollective_Refused(t *testing.T) {
	x := newStepped(t, "sm", 4)
	require.NoError(t, x.connected())
	var reqs []*Request
	for _, g := range x.groups[:3] {
		r, err := g.World().Ibcast(3, make([]byte, 8))
		require.NoError(t, err)
		reqs = append(reqs, r)
	}
	_, err := x.groups[3].World().Ibcast(9, make([]byte, 8))
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	for q, r := range reqs {
		err := x.ended(r)
		require.ErrorIs(t, err, ucs.ErrInvalidParam, "rank %d", q)
		var gone *RankError
		require.ErrorAs(t, err, &gone, "rank %d", q)
		assert.Equal(t, 3, gone.Rank)
	}
}

// TestErrors_SaidOnce: the text of an error names the package once, and what failed.
func TestErrors_SaidOnce(t *testing.T) {
	x := newStepped(t, "sm", 2)
	require.NoError(t, x.connected())
	a, b := x.groups[0], x.groups[1]
	r, err := a.World().Ibarrier()
	require.NoError(t, err)
	b.Abort(errors.New("no more paper"))
	require.EqualError(t, x.ended(r), "ucpgroup: barrier: group failed: rank 1: request canceled")
	require.EqualError(t, a.Err(), "ucpgroup: group failed: rank 1: request canceled")
	require.EqualError(t, a.World().Send(t.Context(), 1, 0, nil), a.Err().Error())
	require.EqualError(t, b.Err(), "ucpgroup: group failed: rank 1: request canceled: no more paper")
	c := newStepped(t, "sm", 2).groups[0].World()
	require.EqualError(t, c.Bcast(t.Context(), 2, nil), "ucpgroup: bcast: root 2: invalid parameter")
	require.EqualError(t, c.g.Err(), "ucpgroup: group failed: rank 0: bcast: root 2: invalid parameter")
}
