package sparse

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

const length = 4 * pageLen

// TestTable_AsAnArray: a table holds what an array would.
func TestTable_AsAnArray(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New[int](length)
		var array [length]*int
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			i := rapid.Uint32Range(0, length-1).Draw(t, "i")
			var v *int
			if rapid.Bool().Draw(t, "set") {
				v = new(int)
			}
			if rapid.Bool().Draw(t, "swap") {
				assert.Same(t, array[i], table.Swap(i, v))
			} else {
				table.Store(i, v)
			}
			array[i] = v
		}
		for i, want := range array {
			assert.Same(t, want, table.Load(uint32(i)))
		}
	})
}

// TestTable_LoadBesideStore: who looks while a page comes into being sees nothing or what was stored.
func TestTable_LoadBesideStore(t *testing.T) {
	table := New[uint32](length)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for i := uint32(0); i < length; {
				if v := table.Load(i); v != nil {
					assert.Equal(t, i, *v)
					i++
				}
			}
		})
	}
	for i := range uint32(length) {
		table.Store(i, &i)
	}
	readers.Wait()
}

// TestTable_AllocatesPagesAsItFills: nothing for numbers that were never used, and once for a page.
func TestTable_AllocatesPagesAsItFills(t *testing.T) {
	table := New[int](length)
	v := new(int)
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		for i := range uint32(length) {
			table.Store(i, nil)
			_ = table.Load(i)
		}
	}))
	table.Store(pageLen, v)
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		for i := range uint32(pageLen) {
			table.Store(pageLen+i, v)
		}
	}))
}

func BenchmarkLoad(b *testing.B) {
	table := New[int](length)
	table.Store(pageLen, new(int))
	for b.Loop() {
		if table.Load(pageLen) == nil {
			b.Fatal("lost")
		}
	}
}
