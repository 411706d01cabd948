package provider

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

func TestSizeSQ(t *testing.T) {
	cases := []struct {
		name string
		typ  verbs.QPType
		cap  verbs.QPCap
		want sqSize
	}{
		{"least", verbs.QPTypeRC, verbs.QPCap{}, sqSize{count: 1, maxPost: 1, maxInline: 28, maxSGE: 2}},
		{"one BB each", verbs.QPTypeRC, verbs.QPCap{MaxSendWR: 100, MaxSendSGE: 1}, sqSize{count: 128, maxPost: 128, maxInline: 28, maxSGE: 2}},
		{"28 bytes in one BB", verbs.QPTypeRC, verbs.QPCap{MaxSendWR: 8, MaxInline: 28}, sqSize{count: 8, maxPost: 8, maxInline: 28, maxSGE: 2}},
		{"29 bytes in two", verbs.QPTypeRC, verbs.QPCap{MaxSendWR: 8, MaxInline: 29}, sqSize{count: 16, maxPost: 8, maxInline: 92, maxSGE: 6}},
		{"three BBs do not divide the ring", verbs.QPTypeRC, verbs.QPCap{MaxSendWR: 8, MaxInline: 100}, sqSize{count: 32, maxPost: 10, maxInline: 156, maxSGE: 10}},
		{"the longest", verbs.QPTypeRC, verbs.QPCap{MaxSendWR: 8, MaxInline: 972}, sqSize{count: 128, maxPost: 8, maxInline: 972, maxSGE: 61}},
		{"UD", verbs.QPTypeUD, verbs.QPCap{MaxSendWR: 8, MaxSendSGE: 1}, sqSize{count: 16, maxPost: 8, maxInline: 60, maxSGE: 4}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := sizeSQ(c.typ, c.cap)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestSizes_Refused(t *testing.T) {
	_, err := sizeSQ(verbs.QPTypeRC, verbs.QPCap{MaxInline: 973})
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	_, err = sizeSQ(verbs.QPTypeRC, verbs.QPCap{MaxSendWR: 40000})
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	_, err = sizeSQ(verbs.QPTypeRC, verbs.QPCap{MaxSendWR: -1})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = sizeRQ(40000, 1)
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	_, err = sizeRQ(1, 33)
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	_, err = sizeRQ(1, -1)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = sizeSRQ(prm.MaxQueueLen, 1)
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	_, err = sizeSRQ(1, 32)
	assert.ErrorIs(t, err, ucs.ErrTooLong)
}

func TestSizeRQ(t *testing.T) {
	got, err := sizeRQ(0, 4)
	require.NoError(t, err)
	assert.Equal(t, rqSize{}, got)
	got, err = sizeRQ(1, 1)
	require.NoError(t, err)
	assert.Equal(t, rqSize{count: 4, stride: 4, maxSGE: 1}, got, "a ring has at least 64 bytes")
	got, err = sizeRQ(100, 3)
	require.NoError(t, err)
	assert.Equal(t, rqSize{count: 128, stride: 6, maxSGE: 4}, got)
	got, err = sizeSRQ(100, 1)
	require.NoError(t, err)
	assert.Equal(t, rqSize{count: 128, stride: 5, maxSGE: 1}, got)
	got, err = sizeSRQ(128, 4)
	require.NoError(t, err)
	assert.Equal(t, rqSize{count: 256, stride: 7, maxSGE: 7}, got)
}

// What is reported fits: the longest work request of a queue is within the room
// that the queue has for each.
func TestSizeSQ_ReportedFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom([]verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUD}).Draw(t, "type")
		ask := verbs.QPCap{MaxSendWR: rapid.IntRange(0, 2000).Draw(t, "wr"), MaxSendSGE: rapid.IntRange(0, 30).Draw(t, "sge"),
			MaxInline: rapid.IntRange(0, 940).Draw(t, "inline")}
		got, err := sizeSQ(typ, ask)
		require.NoError(t, err)
		require.GreaterOrEqual(t, int(got.maxPost), ask.MaxSendWR)
		require.GreaterOrEqual(t, int(got.maxSGE), ask.MaxSendSGE)
		require.GreaterOrEqual(t, int(got.maxInline), ask.MaxInline)
		units := overhead(typ)/prm.SegLen + max(int(got.maxSGE), prm.InlineSegs(int(got.maxInline)))
		require.LessOrEqual(t, units, prm.MaxDS)
		require.LessOrEqual(t, prm.BBs(units)*int(got.maxPost), int(got.count))
	})
}

func TestDBRecPool(t *testing.T) {
	var p dbrecPool
	var taken []dbrecSlot
	seen := map[prm.DBRec]bool{}
	for range 2*dbrecsPerPage + 1 {
		s, err := p.get()
		require.NoError(t, err)
		require.False(t, seen[s.DBRec])
		seen[s.DBRec] = true
		s.StoreSend(7)
		taken = append(taken, s)
	}
	assert.Equal(t, int64(3*dbrecPageLen), p.bytes())
	p.put(taken[70])
	again, err := p.get()
	require.NoError(t, err)
	assert.Equal(t, taken[70].DBRec, again.DBRec)
	assert.Zero(t, again.Send(), "zeroed")
	require.NoError(t, p.free())
}

// libmlx5 keeps an entry back, and rounds up.
func TestSizeCQ(t *testing.T) {
	for n, want := range map[int]int{1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 63: 64, 64: 128, 127: 128, 1 << 20: 1 << 21, prm.MaxCQLen - 1: prm.MaxCQLen} {
		assert.Equal(t, want, sizeCQ(n), "for %d completions", n)
	}
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{Depth: 64})
	assert.Equal(t, 127, cq.Depth())
	assert.EqualValues(t, 128, r.hw.cqs[cq.Provider().(*compQueue).cqn].view.Count())
	_, err := r.prov.CreateCQ(nil, verbs.CQInitAttr{Depth: prm.MaxCQLen})
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
}

func TestOwnerTable(t *testing.T) {
	var o ownerTable
	a, b := &queuePair{}, &queuePair{}
	ia, ib := o.add(owner{qp: a}), o.add(owner{qp: b})
	assert.NotZero(t, ia)
	assert.NotEqual(t, ia, ib)
	assert.Same(t, a, o.get(ia).qp)
	assert.Same(t, b, o.get(ib).qp)
	o.remove(ia)
	assert.Zero(t, o.get(ia))
	srq := &sharedRecv{}
	assert.Equal(t, ia, o.add(owner{srq: srq}), "numbers are used again")
	assert.Same(t, srq, o.get(ia).srq)
	assert.Zero(t, o.get(0))
	assert.Zero(t, o.get(1<<24-1))
}

// TestOwnerTable_CostOfManyQPs: the table is copied as it doubles, and not for each QP.
func TestOwnerTable_CostOfManyQPs(t *testing.T) {
	const n = 1 << 12
	var o ownerTable
	qps, indexes, grown := make([]queuePair, n), make([]uint32, n), 0
	for i := range qps {
		before := o.slots.Load()
		indexes[i] = o.add(owner{qp: &qps[i]})
		if o.slots.Load() != before {
			grown++
		}
	}
	assert.LessOrEqual(t, grown, 10)
	for i, index := range indexes {
		require.Same(t, &qps[i], o.get(index).qp)
		o.remove(index)
	}
	for i := range qps {
		o.add(owner{qp: &qps[i]})
	}
	assert.EqualValues(t, n+firstUserIndex, o.next, "indexes are used again")
}
