package rccore

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// It adds, removes and finds EPs whose QPNs collide.
func TestEPTable_MatchesMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table epTable
		table.init()
		model := map[uint32]*EP{}
		qpns := rapid.SampledFrom([]uint32{1, 17, 33, 49, 16, 2, 1 << 23, 1<<23 + 1, 15, 31, 0xffffff, 65, 81, 97, 113, 129, 145, 161})
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			qpn := qpns.Draw(t, "qpn")
			switch e := model[qpn]; {
			case e == nil:
				e = &EP{QPN: qpn}
				model[qpn] = e
				table.add(e)
			case rapid.Bool().Draw(t, "remove"):
				delete(model, qpn)
				table.remove(e)
				table.remove(e) // a second call has no effect
			}
			require.Equal(t, len(model), table.n)
			require.LessOrEqual(t, 2*table.n, len(table.slots), "at most half full")
			displaced := 0
			for i, e := range table.slots {
				if e != &table.vacant && int(e.QPN)%len(table.slots) != i {
					displaced++
				}
			}
			require.Equal(t, displaced, table.displaced)
		}
		for qpn := range uint32(200) {
			want := model[qpn]
			if want == nil {
				want = &table.vacant
			}
			assert.Same(t, want, table.find(qpn))
		}
	})
}

// TestEPTable_Consecutive: with the numbers that devices give to QPs, no EP is displaced, so that remove moves none.
func TestEPTable_Consecutive(t *testing.T) {
	const first, eps = 0x1a7fe, 10_000
	var table epTable
	table.init()
	all := make([]*EP, eps)
	for i := range all {
		all[i] = &EP{QPN: first + uint32(i)}
		table.add(all[i])
	}
	for i, e := range all {
		require.Zero(t, table.displaced)
		require.Same(t, e, table.find(e.QPN))
		table.remove(e)
		require.Same(t, &table.vacant, table.slots[e.QPN&uint32(len(table.slots)-1)], "EP %d", i)
	}
	for _, e := range all[:3] {
		table.add(e)
	}
	last := all[2]
	last.QPN += 7 // if remove inserted it again, it would have another slot
	table.remove(all[0])
	require.Same(t, last, table.slots[(last.QPN-7)&uint32(len(table.slots)-1)])
	last.QPN -= 7
	table.remove(all[1])
	table.remove(last)
	assert.Zero(t, table.n)
}

// The tables of an iface contain no closed EP, and still the others.
func TestClose_RemovesEPFromTables(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		a, b, ab, _ := over.pair(t, Config{})
		other, _ := join(t, a, b)
		for _, e := range []*endpoint{ab, other} {
			require.NoError(t, e.PutShort([]byte{1}, b.mem.Addr(), b.key))
			flush(t, e, a)
		}
		it := a.it.core
		require.True(t, slices.Contains(it.recent[:], ab.core))
		require.True(t, slices.Contains(it.recent[:], other.core))
		require.NoError(t, ab.Close())
		until(t, func() bool { return it.closing.Len() == 0 }, a, b)
		assert.False(t, slices.Contains(it.recent[:], ab.core))
		assert.True(t, slices.Contains(it.recent[:], other.core))
		assert.Same(t, &it.eps.vacant, it.eps.find(ab.core.QPN))
		assert.Same(t, other.core, it.eps.find(other.core.QPN))
	})
}
