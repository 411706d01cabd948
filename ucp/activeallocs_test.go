package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
)

// TestAllocs_Active: eager active messages allocate nothing on either side after warm-up.
func TestAllocs_Active(t *testing.T) {
	for _, set := range []tlsets.Set{tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`)} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect()
			got, n := 0, 0
			p.B.W.OnActive(1, func(*ucp.ActiveMessage) { got++ })
			data, header := testenv.Pattern(4000, 1), []byte("header")
			active := func(header []byte, size int) func() {
				return func() {
					n++
					p.MustFinish(p.A.EP.SendActive(1, header, data[:size], nil))
					for got < n {
						p.Step()
					}
					refill(p)
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
			require.Zero(t, p.A.W.BadMessages().Load())
		})
	}
}
