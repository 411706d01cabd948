package rccore

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// TestPending_Order: requests of endpoints that have neither room nor credits are
// posted once each, in the order in which they were queued, and nothing overtakes
// them.
func TestPending_Order(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const requests, eps = 200, 3
		a, b, _, _ := over.pair(t, Config{FCWindow: 3, TxDepth: 4, RxDepth: 64})
		var sent, got, want [eps]uint64
		require.NoError(t, b.it.SetAMHandler(0, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
			n := binary.LittleEndian.Uint64(data)
			require.Equal(t, got[n%eps], n/eps, "endpoint %d", n%eps)
			got[n%eps]++
			return false
		})))
		for i := range uint64(eps) {
			e, _ := join(t, a, b)
			for e.AMShort(0, sent[i]*eps+i, nil) == nil {
				sent[i]++
			}
			direct := sent[i]
			want[i] = direct + requests
			for k := range uint64(requests) {
				require.NoError(t, e.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
					require.Equal(t, direct+k, sent[i], "in order, and once")
					err := e.AMShort(0, sent[i]*eps+i, nil)
					if err == nil {
						sent[i]++
					}
					return err
				}}))
			}
			require.Equal(t, uct.ErrNoResource, e.AMShort(0, 0, nil))
			require.Equal(t, uct.ErrNoResource, e.PutShort([]byte{1}, b.mem.Addr(), b.key))
		}
		until(t, func() bool { return got == want }, a, b)
		assert.Equal(t, want, sent)
		assert.Empty(t, a.errs)
	})
}
