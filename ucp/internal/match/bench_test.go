package match

import (
	"fmt"
	"testing"
)

// benchDepths are the numbers of other entries.
var benchDepths = [...]int{0, 1000, 100_000}

// benchMasks are the masks of entries and searches.
var benchMasks = map[string][]uint64{"exact": {exact}, "wild": mpiMasks[:]}

// run runs a benchmark for all depths and masks. other is a tag that matches no entry of make.
func run(b *testing.B, fill func(table *table, n int, masks []uint64), op func(table *table, tag, mask uint64)) {
	for name, masks := range benchMasks {
		for _, n := range benchDepths {
			b.Run(fmt.Sprintf("%s/%d", name, n+1), func(b *testing.B) {
				table := newTable()
				fill(table, n, masks)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					op(table, 9+uint64(i)<<50, masks[i%len(masks)])
				}
			})
		}
	}
}

func post(table *table, n int, masks []uint64) {
	list := posted(n, masks...)
	for i := range list {
		table.Expect(&list[i])
	}
}

func keep(table *table, n int, _ []uint64) {
	list := came(n)
	for i := range list {
		table.Keep(&list[i])
	}
}

// BenchmarkExpectArrive: a receive is posted behind others, and its message arrives.
func BenchmarkExpectArrive(b *testing.B) {
	r := &recv{}
	run(b, post, func(table *table, tag, mask uint64) {
		r.Tag, r.Mask = tag, mask
		table.Expect(r)
		if table.Arrive(tag) != r {
			b.Fatal("not found")
		}
	})
}

// BenchmarkKeepTake: a message arrives behind others, and is received.
func BenchmarkKeepTake(b *testing.B) {
	m := &msg{}
	run(b, keep, func(table *table, tag, mask uint64) {
		m.Tag = tag
		table.Keep(m)
		if table.Take(tag, mask) != m {
			b.Fatal("not found")
		}
	})
}
