package sm

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

// renumber makes the next message of a ring number n, as if n messages had been sent.
func renumber(tx *producer, rx *consumer, n uint64) {
	tx.tail, tx.limit = n, n+tx.mask+1
	rx.head, rx.want, rx.off = n, uint32(n)+1, uintptr(n&tx.mask)*slotLen
	rx.returnSlots()
}

// TestRing_NumbersWrap: the numbers of messages in slots, and of the slots of segments, have 32 bits.
// Both wrap to 0, which is also the content of an unused slot.
func TestRing_NumbersWrap(t *testing.T) {
	w := openTwo(t, Config{FIFOSize: 8, Segs: 2})
	var want uint64
	require.NoError(t, w.b.iface.SetAMHandler(1, uct.AMHandlerFunc(func(data []byte, _ uct.Desc) bool {
		require.Equal(t, want, binary.LittleEndian.Uint64(data))
		want++
		return false
	})))
	var posted uint64
	long := make([]byte, 200)
	post := func() error {
		if posted%3 != 0 {
			return w.ab.AMShort(1, posted, nil)
		}
		binary.LittleEndian.PutUint64(long, posted)
		_, err := w.ab.AMBcopy(1, &blank{long})
		return err
	}
	turn := func(messages uint64) {
		for end := posted + messages; posted < end; {
			if post() == nil {
				posted++
				continue
			}
			w.until(func() bool { return want == posted })
		}
		w.until(func() bool { return want == posted })
	}
	turn(1)
	rx := &w.b.iface.in[0].rx
	depth := w.ab.tx.mask + 1
	require.True(t, w.ab.tx.refill(), "its segment is here before the numbers jump")
	renumber(&w.ab.tx, rx, 1<<32-2*depth)
	turn(5 * depth)
	require.Greater(t, w.ab.tx.tail, uint64(1<<32))
}
