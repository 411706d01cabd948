package rccore

import (
	"testing"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// BenchmarkPut8 compares short puts with the same work requests posted to the same QP directly:
// single puts, each signaled and polled, and bursts of 256 with a flush and the same moderation.
func BenchmarkPut8(b *testing.B) {
	const burst = 256
	x, y, ep, _ := poster{Posters[0]}.pair(b, Config{TxDepth: 512})
	buf, raddr := make([]byte, 8), y.mem.Addr()
	b.Run("core/each", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if ep.PutShort(buf, raddr, y.key) != nil {
				b.Fatal("put refused")
			}
			for ep.core.CI != ep.core.PI {
				x.it.Progress()
			}
		}
	})
	b.Run("core/burst256", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range burst {
				if ep.PutShort(buf, raddr, y.key) != nil {
					b.Fatal("put refused")
				}
			}
			for {
				if pending, err := ep.Flush(nil); err != nil || !pending {
					break
				}
				x.it.Progress()
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/burst, "ns/msg")
	})
	var wc [defaultMaxPoll]verbs.WC
	wr := []verbs.SendWR{{Opcode: verbs.OpRDMAWrite, Inline: buf, RemoteAddr: raddr, RKey: uint32(y.key)}}
	post := func(flags verbs.SendFlags) {
		wr[0].Flags = verbs.SendInline | flags
		if _, err := ep.core.link.(*QPLink).QP.PostSend(wr); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("verbs/each", func(b *testing.B) {
		for b.Loop() {
			post(verbs.SendSignaled)
			for x.it.core.poller.Poll(wc[:]) == 0 {
			}
		}
	})
	b.Run("verbs/burst256", func(b *testing.B) {
		for b.Loop() {
			for i := range burst {
				flags := verbs.SendFlags(0)
				if i%65 == 0 || i == burst-1 {
					flags = verbs.SendSignaled
				}
				post(flags)
			}
			for left := 5; left > 0; {
				left -= x.it.core.poller.Poll(wc[:])
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/burst, "ns/msg")
	})
}
