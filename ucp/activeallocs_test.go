package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// TestAllocs_Active: eager active messages allocate nothing on either side after warm-up.
func TestAllocs_Active(t *testing.T) {
	for _, set := range []tlsets.Set{tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`)} {
		t.Run(set.Name, func(t *testing.T) {
			p := newPair(t, set, Config{}).connect()
			got, n := 0, 0
			p.b.w.OnActive(1, func(*ActiveMessage) { got++ })
			data, header := pattern(4000, 1), []byte("header")
			active := func(header []byte, size int) func() {
				return func() {
					n++
					p.endBoth(p.a.ep.SendActive(1, header, data[:size], nil))
					for got < n {
						p.step()
					}
					p.refill()
				}
			}
			for _, tc := range []struct {
				name string
				do   func()
			}{
				{"active short", active(nil, 8)}, {"active short with a header", active(header, 8)},
				{"active copied", active(header, 4000)},
			} {
				for range 300 { // warm the pools of all layers
					tc.do()
				}
				testenv.NoAllocs(t, tc.name, tc.do)
			}
			require.Zero(t, p.a.w.stats.badMessages.Load())
		})
	}
}
