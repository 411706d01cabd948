package rccore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestEPTable_LikeAMap adds, removes and finds; QPNs collide on purpose.
func TestEPTable_LikeAMap(t *testing.T) {
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
				table.remove(e) // a second time does nothing
			}
			require.Equal(t, len(model), table.n)
			require.LessOrEqual(t, 2*table.n, len(table.slots), "at most half full")
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
