package udcore

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

// TestPending_TriesGrowWithRequests: pending requests that wait for packets are not tried while
// none is free. So 200 EPs need about 200 tries, not 200 for each packet that becomes free.
func TestPending_TriesGrowWithRequests(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const eps = 200
		a, b := over.pair(t, Config{TxBuffers: 4}, Config{})
		hog := a.epTo(b)
		for i := uint64(0); hog.AMShort(0, i, nil) == nil; i++ {
		}
		tries, sent := 0, 0
		for i := range uint64(eps) {
			e := a.epTo(b)
			require.NoError(t, e.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
				tries++
				err := e.AMShort(0, i, nil)
				if err == nil {
					sent++
				}
				return err
			}}))
		}
		until(t, func() bool { return len(b.got) == eps+4 }, a, b)
		assert.Equal(t, eps, sent)
		assert.LessOrEqual(t, tries, 2*eps)
	})
}

// TestPending_FailureNeedsNoPacket: the pending request of a failed EP is dispatched and sees the
// failure, even if other connections use all packets.
func TestPending_FailureNeedsNoPacket(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		md := over.newMD(t)
		a, b, c := newSide(t, md, Config{TxBuffers: 4}), newSide(t, md, Config{}), newSide(t, md, Config{})
		ab, ac := a.epTo(b), a.epTo(c)
		ac.send(t, 0)
		until(t, func() bool { return len(c.got) == 1 && a.it.core.pool.Free() == 4 }, a, c)
		for i := uint64(0); ab.AMShort(0, i, nil) == nil; i++ {
		}
		var got error
		require.NoError(t, ac.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
			got = ac.AMShort(0, 1, nil)
			return got
		}}))
		require.NoError(t, c.it.Close())
		arrive(t, func() bool { return got != nil }, a)
		assert.ErrorIs(t, got, uct.ErrEPFailed)
		assert.Zero(t, a.it.core.pool.Free(), "b has not acknowledged")
	})
}

// TestFreeNumbers: alloc returns the smallest free number.
func TestFreeNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var free freeNumbers
		var used []uint32
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				want := uint32(0)
				for slices.Contains(used, want) {
					want++
				}
				require.Equal(t, want, free.alloc())
				used = append(used, want)
			},
			"put": func(t *rapid.T) {
				if len(used) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(used)-1).Draw(t, "i")
				free.put(used[i])
				used = slices.Delete(used, i, i+1)
			},
		})
	})
}
