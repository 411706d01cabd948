package handle

import (
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
)

// anyTable is what Table and Counted have in common.
type anyTable interface {
	Add(v *int) uint64
	Find(handle uint64) *int
	Remove(handle uint64) bool
	Len() int
	All() iter.Seq[*int]
}

// TestTable: a handle finds its value as long as that is there, and nothing after.
func TestTable(t *testing.T) {
	for _, tc := range []struct {
		name        string
		index, bits int
	}{{"table", 32, 64}, {"narrow", 5, 8}, {"half a word", 20, 32}} {
		t.Run(tc.name, rapid.MakeCheck(func(t *rapid.T) {
			var table anyTable = &Table[*int]{}
			if tc.bits != 64 {
				counted := Make[*int](tc.index, tc.bits)
				table = &counted
			}
			live := map[uint64]*int{}
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				if len(live) > 0 && rapid.Bool().Draw(t, "remove") {
					for h := range live {
						require.True(t, table.Remove(h))
						require.False(t, table.Remove(h))
						require.Nil(t, table.Find(h))
						delete(live, h)
						break
					}
					continue
				}
				v := new(int)
				h := table.Add(v)
				if len(live) == 1<<tc.index {
					require.Zero(t, h, "full")
					continue
				}
				require.Greater(t, h, uint64(1)<<tc.index-1)
				require.LessOrEqual(t, h, uint64(1)<<tc.bits-1)
				require.NotContains(t, live, h)
				live[h] = v
			}
			require.Equal(t, len(live), table.Len())
			all := slices.Collect(table.All())
			require.Len(t, all, len(live))
			for h, v := range live {
				assert.Same(t, v, table.Find(h))
				assert.Contains(t, all, v)
			}
			assert.Nil(t, table.Find(0))
			assert.False(t, table.Remove(uint64(1)<<tc.index-1))
		}))
	}
}

// TestTable_TagsAreRandom: neither the next handle of a place nor that of the next place
// follows from those before. Each of the 32 bits of a tag is set in about half of the
// handles: 1,000 of them have a bit set between 350 and 650 times, but for a chance of
// 10^-20. A guess with the right index finds nothing.
func TestTable_TagsAreRandom(t *testing.T) {
	const uses = 1000
	for name, remove := range map[string]bool{"one place": true, "many places": false} {
		t.Run(name, func(t *testing.T) {
			var table Table[*int]
			v, tags, set, last := new(int), map[uint64]bool{}, [64]int{}, uint64(0)
			for i := range uint64(uses) {
				h := table.Add(v)
				tags[h>>32] = true
				for bit := range set {
					set[bit] += int(h >> bit & 1)
				}
				for _, guess := range []uint64{h + 1, h - 1, h + 1<<32, h - 1<<32, h ^ 1<<63, h & indexMask, 1<<32 | i, last} {
					require.Nil(t, table.Find(guess))
					require.False(t, table.Remove(guess))
				}
				if remove {
					require.Zero(t, h&indexMask)
					require.True(t, table.Remove(h))
					last = h
				} else {
					require.Equal(t, i, h&indexMask)
				}
			}
			assert.Greater(t, len(tags), uses-3, "of 1,000 random tags two are equal in 1 of 8,000 runs")
			for bit := 32; bit < 64; bit++ {
				assert.InDelta(t, uses/2, set[bit], 150, "bit %d", bit)
			}
		})
	}
}

// TestCounted_LateHandles: a place has a new handle for each of its uses until the uses
// begin again.
func TestCounted_LateHandles(t *testing.T) {
	table := Make[*int](3, 8)
	v := new(int)
	seen := map[uint64]bool{}
	const uses = 1<<5 - 1
	for range uses {
		h := table.Add(v)
		require.False(t, seen[h])
		seen[h] = true
		table.Remove(h)
	}
	assert.True(t, seen[table.Add(v)])
	assert.Equal(t, 1, table.Places())
}

// TestTable_AllRemoves: a loop over all may remove each.
func TestTable_AllRemoves(t *testing.T) {
	var table Table[*uint64]
	for range 5 {
		v := new(uint64)
		*v = table.Add(v)
	}
	for v := range table.All() {
		require.True(t, table.Remove(*v))
	}
	assert.Zero(t, table.Len())
	for range table.All() {
		t.Fatal("a value is left")
	}
}

func TestTable_NoAllocs(t *testing.T) {
	var table Table[*int]
	v := new(int)
	table.Remove(table.Add(v))
	testenv.NoAllocs(t, "add, find, remove, more often than a block has tags", func() {
		h := table.Add(v)
		if table.Find(h) != v {
			t.Fatal("not found")
		}
		table.Remove(h)
	})
}

func BenchmarkAdd(b *testing.B) {
	b.ReportAllocs()
	var table Table[*int]
	v := new(int)
	for b.Loop() {
		table.Remove(table.Add(v))
	}
}

func BenchmarkCounted_Add(b *testing.B) {
	b.ReportAllocs()
	table := Make[*int](20, 32)
	v := new(int)
	for b.Loop() {
		table.Remove(table.Add(v))
	}
}

func BenchmarkFind(b *testing.B) {
	b.ReportAllocs()
	var table Table[*int]
	v := new(int)
	h := table.Add(v)
	for b.Loop() {
		if table.Find(h) != v {
			b.Fatal("not found")
		}
	}
}

// TestShared: as a Table, beyond several growths.
func TestShared(t *testing.T) {
	var s Shared[int]
	assert.Nil(t, s.Find(0))
	assert.Nil(t, s.Find(1<<32))
	live := map[uint64]*int{}
	for i := range 200 {
		v := new(int)
		h := s.Add(v)
		require.NotContains(t, live, h)
		live[h] = v
		if i%3 == 0 {
			require.True(t, s.Remove(h))
			require.False(t, s.Remove(h))
			require.Nil(t, s.Find(h))
			delete(live, h)
		}
	}
	for h, v := range live {
		assert.Same(t, v, s.Find(h))
		assert.Nil(t, s.Find(h+1<<32), "of a later use")
	}
	assert.Nil(t, s.Find(1<<32+1<<20), "never handed out")
}

// TestShared_Goroutines: values are found while others come and go.
func TestShared_Goroutines(t *testing.T) {
	var s Shared[int]
	stays := new(int)
	h := s.Add(stays)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				mine := &i
				own := s.Add(mine)
				assert.Same(t, stays, s.Find(h))
				assert.Same(t, mine, s.Find(own))
				if i%2 == 0 {
					s.Remove(own)
				}
			}
		})
	}
	wg.Wait()
	testenv.NoAllocs(t, "find", func() { s.Find(h) })
}

func BenchmarkShared(b *testing.B) {
	b.ReportAllocs()
	var s Shared[int]
	h := s.Add(new(int))
	for b.Loop() {
		if s.Find(h) == nil {
			b.Fatal("not found")
		}
	}
}
