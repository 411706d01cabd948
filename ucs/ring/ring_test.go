package ring

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestDepth(t *testing.T) {
	for _, tt := range []struct{ in, spsc, mpsc int }{
		{-5, 1, 2}, {0, 1, 2}, {1, 1, 2}, {2, 2, 2}, {3, 4, 4}, {64, 64, 64}, {65, 128, 128},
	} {
		assert.Equal(t, tt.spsc, NewSPSC[uint32](tt.in).Depth(), tt.in)
		assert.Equal(t, tt.mpsc, NewMPSC[uint32](tt.in).Depth(), tt.in)
	}
}

// TestSPSC_Model compares random calls with a slice, from cursors that start near
// the wrap of 64 bits.
func TestSPSC_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewSPSC[uint64](rapid.IntRange(1, 20).Draw(t, "depth"))
		start := rapid.SampledFrom([]uint64{0, math.MaxUint64 - 10}).Draw(t, "start")
		r.prod.pos, r.prod.seen, r.cons.pos, r.cons.seen = start, start, start, start
		var model []uint64
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				v := make([]uint64, rapid.IntRange(0, 30).Draw(t, "n"))
				for i := range v {
					v[i] = next + uint64(i)
				}
				n := r.Push(v)
				if want := min(len(v), r.Depth()-len(model)); n != want {
					t.Fatalf("pushed %d of %d, want %d", n, len(v), want)
				}
				model = append(model, v[:n]...)
				next += uint64(n)
			},
			"push one": func(t *rapid.T) {
				if ok := r.PushOne(next); ok != (len(model) < r.Depth()) {
					t.Fatalf("pushed one: %v with %d of %d", ok, len(model), r.Depth())
				} else if ok {
					model = append(model, next)
					next++
				}
			},
			"pop": func(t *rapid.T) {
				out := make([]uint64, rapid.IntRange(0, 30).Draw(t, "n"))
				n := r.Pop(out)
				if want := min(len(out), len(model)); n != want || !slices.Equal(out[:n], model[:n]) {
					t.Fatalf("popped %v, want %v", out[:n], model[:want])
				}
				model = model[n:]
			},
			"": func(t *rapid.T) {
				if r.Len() != len(model) {
					t.Fatalf("length %d, want %d", r.Len(), len(model))
				}
			},
		})
	})
}

func TestMPSC_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewMPSC[uint32](rapid.IntRange(1, 20).Draw(t, "depth"))
		var model []uint32
		next := uint32(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if ok := r.Push(next); ok != (len(model) < r.Depth()) {
					t.Fatalf("pushed: %v with %d of %d", ok, len(model), r.Depth())
				} else if ok {
					model = append(model, next)
					next++
				}
			},
			"pop": func(t *rapid.T) {
				out := make([]uint32, rapid.IntRange(0, 30).Draw(t, "n"))
				n := r.Pop(out)
				if want := min(len(out), len(model)); n != want || !slices.Equal(out[:n], model[:n]) {
					t.Fatalf("popped %v, want %v", out[:n], model[:want])
				}
				model = model[n:]
			},
		})
	})
}

// TestSPSC_TwoGoroutines passes consecutive numbers in batches of all lengths.
func TestSPSC_TwoGoroutines(t *testing.T) {
	const total = 20000
	r := NewSPSC[uint32](64)
	var wg sync.WaitGroup
	wg.Go(func() {
		var batch [17]uint32
		for sent := uint32(0); sent < total; {
			n := min(sent%17+1, total-sent)
			for i := range batch[:n] {
				batch[i] = sent + uint32(i)
			}
			pushed := r.Push(batch[:n])
			sent += uint32(pushed)
			if pushed == 0 {
				runtime.Gosched()
			}
		}
	})
	var out [23]uint32
	for got := uint32(0); got < total; {
		n := r.Pop(out[:got%23+1])
		for _, x := range out[:n] {
			require.Equal(t, got, x)
			got++
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	assert.Zero(t, r.Len())
}

// TestMPSC_ManyGoroutines checks that nothing is lost, doubled or reordered within
// a producer. A word is producer and number.
func TestMPSC_ManyGoroutines(t *testing.T) {
	const producers, each = 4, 4000
	r := NewMPSC[uint64](32)
	var wg sync.WaitGroup
	for p := range uint64(producers) {
		wg.Go(func() {
			for n := uint64(0); n < each; {
				if r.Push(p<<32 | n) {
					n++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var next [producers]uint64
	var out [8]uint64
	for got := 0; got < producers*each; {
		n := r.Pop(out[:])
		for _, x := range out[:n] {
			require.Equal(t, next[x>>32], x&math.MaxUint32)
			next[x>>32]++
		}
		got += n
		if n == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	assert.Zero(t, r.Pop(out[:]))
}

// TestSPSC_HandsMemoryOver passes indexes of memory that the ring must order: the
// race detector watches it.
func TestSPSC_HandsMemoryOver(t *testing.T) {
	const count = 500
	memory := make([]int, count)
	r := NewSPSC[uint32](8)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range uint32(count) {
			memory[i] = int(i) + 1
			for !r.PushOne(i) {
				runtime.Gosched()
			}
		}
	})
	var out [4]uint32
	for got := 0; got < count; {
		n := r.Pop(out[:])
		for _, i := range out[:n] {
			require.Equal(t, int(i)+1, memory[i])
		}
		if got += n; n == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
}

func TestNoAllocs(t *testing.T) {
	s, m := NewSPSC[uint32](16), NewMPSC[uint32](16)
	in, out := make([]uint32, 4), make([]uint32, 8)
	testenv.NoAllocs(t, "spsc", func() { s.Push(in); s.PushOne(1); s.Pop(out) })
	testenv.NoAllocs(t, "mpsc", func() { m.Push(1); m.Pop(out) })
}

func BenchmarkSPSC(b *testing.B) {
	for _, batch := range []int{1, 16} {
		b.Run(fmt.Sprintf("batch%d", batch), func(b *testing.B) {
			r, v := NewSPSC[uint32](64), make([]uint32, batch)
			b.ReportAllocs()
			for b.Loop() {
				r.Push(v)
				r.Pop(v)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/msg")
		})
	}
}

func BenchmarkMPSC(b *testing.B) {
	r, out := NewMPSC[uint32](64), make([]uint32, 1)
	b.ReportAllocs()
	for b.Loop() {
		r.Push(1)
		r.Pop(out)
	}
}

func ExampleSPSC() {
	r := NewSPSC[uint32](4)
	fmt.Println(r.Push([]uint32{1, 2, 3, 4, 5})) // one does not fit
	out := make([]uint32, 3)
	fmt.Println(r.Pop(out), out)
	// Output:
	// 4
	// 3 [1 2 3]
}
