package proto

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

func TestEager_Time(t *testing.T) {
	m := uct.Cost{Send: 100, Recv: 50, Latency: 350, Bandwidth: 1e9}
	v := Copies(m, 10e9, 20e9, 8000, 5000)
	assert.Equal(t, uint64(500_000+8000*200), v.Time(8000), "link and two copies, one after the other")
	assert.Equal(t, uint64(500_000+5000*200+10_000*100+2*100_000), v.Time(15_000), "later fragments wait for the link")
	bounded := Copies(m, 10e9, 20e9, 8000, 20_000)
	assert.Equal(t, uint64(500_000+8001*200), bounded.Time(8001), "more than one call permits may be one fragment")
	plain := Copies(m, 0, 0, 8000, 5000)
	assert.Equal(t, uint64(500_000+8000*1000), plain.Time(8000), "as declared")
}

// TestThreshold_Example: two copies against one.
func TestThreshold_Example(t *testing.T) {
	eager := Copies(uct.Cost{Latency: 100 * time.Nanosecond, Bandwidth: 25e9}, 0, 0, 1<<20, 1<<20)
	got := uct.Cost{Latency: 50 * time.Nanosecond, Bandwidth: 50e9}
	rndv := func(n int) uint64 { return got.Time(uint64(n)) }
	x := ThresholdOf(8000, 32<<10, &eager, 100_000, rndv)
	assert.Equal(t, 25_000, x.From) // 500 ns at 20 ps for each byte
	assert.Equal(t, "1100 ns, eager 1100 ns", x.Why)
	assert.Equal(t, 26_000, ThresholdOf(26_000, 32<<10, &eager, 100_000, rndv).From, "no less than least")
	x = ThresholdOf(8000, 16<<10, &eager, 100_000, rndv)
	assert.Equal(t, 16<<10, x.From)
	assert.Contains(t, x.Why, "larger ones would delay later messages; 927 ns, eager 755 ns")
}

// TestThreshold_Pays: at the threshold rendezvous takes no longer, and one byte below it takes longer, or the threshold
// is one of the limits.
func TestThreshold_Pays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ns := rapid.Int64Range(0, 5000)
		rate := rapid.Uint64Range(1e8, 1e11)
		eager := Copies(uct.Cost{Latency: time.Duration(ns.Draw(rt, "eager"))}, rate.Draw(rt, "link"), rate.Draw(rt, "copy"), 8000, 8000)
		data := uct.Cost{Latency: time.Duration(ns.Draw(rt, "rndv")), Bandwidth: rate.Draw(rt, "get")}
		rndv := func(n int) uint64 { return data.Time(uint64(n)) }
		least, most := rapid.IntRange(1, 8000).Draw(rt, "least"), rapid.IntRange(8001, 1<<20).Draw(rt, "most")
		x := ThresholdOf(least, most, &eager, 1000, rndv)
		longer := func(n int) bool { return 1000+rndv(n)+announcing > eager.Time(n) }
		assert.LessOrEqual(rt, x.From, most)
		assert.GreaterOrEqual(rt, x.From, least)
		if x.From < most {
			assert.False(rt, longer(x.From))
		}
		if x.From > max(least, ShortestAnnounced) && x.From < most {
			assert.True(rt, longer(x.From-1))
		}
	})
}
