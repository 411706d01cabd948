package rccore

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Pending requests of endpoints without room or credits are posted once each, in the order in which
// they were added, and no other operation passes them.
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

// Pending requests of many EPs that wait for slots in the completion queue are not tried while none
// is free: 100 EPs cost about 100 tries, not 100 for each slot that becomes free.
func TestPending_NoTriesWithoutSlots(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const eps, slots = 100, 4
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{TxDepth: slots, TxCQDepth: slots, Moderation: 1}), over.newSide(t, md, Config{})
		first, _ := join(t, a, b)
		for first.PutShort([]byte{1}, b.mem.Addr(), b.key) == nil {
		}
		tries, sent := 0, 0
		for range eps {
			e, _ := join(t, a, b)
			require.NoError(t, e.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
				tries++
				err := e.PutShort([]byte{1}, b.mem.Addr(), b.key)
				if err == nil {
					sent++
				}
				return err
			}}))
		}
		until(t, func() bool { return sent == eps }, a, b)
		assert.LessOrEqual(t, tries, 2*eps)
	})
}

// EPs closed at the same time share the slots of the completion queue one after the other, and each
// peer gets the disconnect message.
func TestClose_MoreEPsThanCQSlots(t *testing.T) {
	each(t, func(t *testing.T, over poster) {
		const eps, slots = 50, 4
		md := over.newMD(t)
		a, b := over.newSide(t, md, Config{TxDepth: slots, TxCQDepth: slots}), over.newSide(t, md, Config{})
		a.it.core.disconnectTimeout = time.Hour
		var all []*endpoint
		for range eps {
			e, _ := join(t, a, b)
			all = append(all, e)
		}
		for _, e := range all {
			require.NoError(t, e.Close())
		}
		assert.Equal(t, eps-slots, a.it.core.releases.n)
		until(t, func() bool { return len(b.errs) == eps && a.it.core.closing.Len() == 0 }, a, b)
		assert.Equal(t, slots, a.it.core.cqFree)
		assert.Empty(t, a.it.core.reservers)
		for _, err := range b.errs {
			assert.ErrorIs(t, err, ucs.ErrPeerClosed)
		}
	})
}
