package ucpgroup

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
)

// TestGroup_StoppedRank: operations to a stopped rank fail when the group has failed, although that rank gets no
// notice.
func TestGroup_StoppedRank(t *testing.T) {
	overAll(t, func(t *testing.T, tls string) {
		x := newStepped(t, tls, 3)
		require.NoError(t, x.connected())
		a, all := x.groups[0], x.groups
		for _, g := range all {
			g.waits = time.Hour // no timeout on a slow machine
		}
		out, err := a.World().IsendSync(2, 1, make([]byte, 1<<20), nil)
		require.NoError(t, err)
		x.groups = all[:2] // the last one is stopped
		for range 100 {
			a.Progress()
		}
		all[1].Abort(ucs.ErrCanceled)
		x.until(func() bool { return a.closesDue })
		assert.True(t, a.peers[2].closeDue)
		assert.False(t, a.peers[1].closeDue, "no operation to it is in progress")
		for range 100 {
			a.Progress()
		}
		require.False(t, out.Done(), "rank 2 may still get the notice")
		for _, g := range all {
			g.waits = 0
		}
		var gone *RankError
		require.ErrorAs(t, x.ended(out), &gone)
		assert.Equal(t, 1, gone.Rank)
	})
}

// TestGroup_StoppedSender: a receive from any rank has matched a message that a stopped rank has announced. It fails
// when the group has failed.
func TestGroup_StoppedSender(t *testing.T) {
	x := newStepped(t, "tcp", 3)
	require.NoError(t, x.connected())
	a, all := x.groups[0], x.groups
	for _, g := range all {
		g.waits = time.Hour
	}
	_, err := all[2].World().Isend(0, 1, make([]byte, 1<<20), nil)
	require.NoError(t, err)
	x.until(func() bool {
		_, found, err := a.World().Iprobe(AnySource, 1)
		return err == nil && found
	})
	x.groups = all[:2] // the last one is stopped
	in, err := a.World().Irecv(AnySource, 1, make([]byte, 1<<20), nil)
	require.NoError(t, err)
	require.False(t, in.Cancel(), "it has its message")
	all[1].Abort(ucs.ErrCanceled)
	x.until(func() bool { return a.closesDue })
	require.False(t, in.Done())
	for _, g := range all {
		g.waits = 0
	}
	var gone *RankError
	require.ErrorAs(t, x.ended(in), &gone)
	assert.Equal(t, 1, gone.Rank)
}

// TestGroup_RankDies: when the endpoint of a rank fails, other than after the rank has left, the group fails on all
// ranks, with that rank as the reason.
func TestGroup_RankDies(t *testing.T) {
	x := newStepped(t, "sm", 4)
	require.NoError(t, x.connected())
	x.groups[0].lost(3, ucs.ErrConnReset)
	x.groups[0].lost(3, ucs.ErrTimedOut) // the first reason counts
	x.groups = x.groups[:3]
	x.until(func() bool { return x.groups[1].Err() != nil && x.groups[2].Err() != nil })
	for q, g := range x.groups {
		var gone *RankError
		require.ErrorAs(t, g.Err(), &gone, "rank %d", q)
		assert.Equal(t, 3, gone.Rank, "rank %d", q)
		assert.ErrorIs(t, g.Err(), ucs.ErrConnReset, "rank %d", q)
	}
	for _, g := range x.groups {
		g.waits = 0
		require.Error(t, g.Close(t.Context()))
		for q := range g.peers {
			assert.Nil(t, g.peers[q].notice, "its request was released")
		}
	}
}

// TestCollective_OthersAreTold: a rank whose collective operation fails notifies the others when the error is returned,
// because its caller may make no more progress.
func TestCollective_OthersAreTold(t *testing.T) {
	x := newStepped(t, "sm", 2)
	require.NoError(t, x.connected())
	a, b := x.groups[0], x.groups[1]
	_, err := a.World().Ibcast(0, make([]byte, 7))
	require.NoError(t, err)
	r, err := b.World().Ibcast(0, make([]byte, 8))
	require.NoError(t, err)
	x.until(r.Done)
	require.NoError(t, a.Err())
	_, err = r.take()
	require.ErrorIs(t, err, ucs.ErrInvalidParam)
	x.groups = x.groups[:1]
	x.until(func() bool { return a.Err() != nil })
	a.Progress()
	assert.False(t, a.peers[0].notified, "a rank does not notify itself")
	assert.False(t, a.peers[1].notified, "nor the failed rank")
}

// TestCollective_Refused: an invalid parameter on one rank fails the operation on all, with the reason.
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

// TestErrors_SaidOnce: the text of an error has the package once, and the operation.
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
