package self

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

type counter struct{ n int }

func (h *counter) HandleAM([]byte, uct.Desc) bool { h.n++; return false }

func BenchmarkSelf(b *testing.B) {
	r := openRig(b)
	require.NoError(b, r.iface.SetAMHandler(1, &counter{}))
	am, put := uct.AMSender(r.ep), uct.Putter(r.ep)
	buf, key, raddr := make([]byte, 8), r.key, r.mem.Addr()
	b.Run("am_short_and_progress/8B", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := am.AMShort(1, 1, nil); err != nil {
				b.Fatal(err)
			}
			r.iface.Progress()
		}
	})
	b.Run("am_short_batch16/8B", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range 16 {
				if err := am.AMShort(1, 1, nil); err != nil {
					b.Fatal(err)
				}
			}
			r.iface.Progress()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/msg")
	})
	b.Run("put_short/8B", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := put.PutShort(buf, raddr, key); err != nil {
				b.Fatal(err)
			}
		}
	})
}
