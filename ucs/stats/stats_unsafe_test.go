package stats

import (
	"encoding/json"
	"expvar"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var _ expvar.Var = (*Node)(nil)

// flat is the snapshot as lines.
func flat(n *Node) []string {
	var lines []string
	for path, v := range n.Snapshot().All() {
		lines = append(lines, fmt.Sprintf("%s %d", path, v))
	}
	return lines
}

func TestCounter(t *testing.T) {
	var c Counter
	assert.Zero(t, c.Load())
	c.Inc()
	c.Add(41)
	assert.Equal(t, uint64(42), c.Load())
	assert.EqualValues(t, 8, unsafe.Sizeof(c), "a counter is a word of its object")
	testenv.NoAllocs(t, "counter", func() { c.Inc() })
}

func TestCounter_ReadWhileItCounts(t *testing.T) {
	const total = 10000
	var c Counter
	var wg sync.WaitGroup
	wg.Go(func() {
		for range total {
			c.Inc()
		}
	})
	for last := uint64(0); last < total; runtime.Gosched() {
		now := c.Load()
		require.GreaterOrEqual(t, now, last, "it goes up only")
		require.LessOrEqual(t, now, uint64(total))
		last = now
	}
	wg.Wait()
}

func TestNode_Order(t *testing.T) {
	var a, b, c Counter
	a.Add(1)
	b.Add(2)
	c.Add(3)
	root := New("ucp")
	w := root.Child("worker")
	root.Child("alpha").Add("n", &c)
	w.Add("sends", &a)
	w.Add("bytes", &b)
	ep := w.Child("ep")
	ep.Add("sends", &c)
	assert.Equal(t, []string{"ucp/alpha.n 3", "ucp/worker.sends 1", "ucp/worker.bytes 2", "ucp/worker/ep.sends 3"}, flat(root))
	assert.Equal(t, []string{"worker.sends 1", "worker.bytes 2", "worker/ep.sends 3"}, flat(w), "a part of the tree")
}

func TestNode_NamesAreUnique(t *testing.T) {
	root := New("r")
	first, second, third := root.Child("ep"), root.Child("ep"), root.Child("ep")
	assert.Equal(t, []string{"ep", "ep#2", "ep#3"}, []string{first.Name(), second.Name(), third.Name()})
	second.Remove()
	assert.Equal(t, "ep#2", root.Child("ep").Name(), "the number is free again")
}

func TestNode_Remove(t *testing.T) {
	var c Counter
	root := New("r")
	child := root.Child("c")
	child.Add("n", &c)
	child.Child("below").Add("n", &c)
	assert.Len(t, flat(root), 2)
	child.Remove()
	child.Remove()
	root.Remove()
	assert.Empty(t, flat(root))
	assert.Len(t, flat(child), 2, "still readable by itself")
}

func TestSnapshot_IsACopyAndStops(t *testing.T) {
	var c Counter
	root := New("r")
	root.Add("n", &c)
	root.Child("x").Add("n", &c)
	s := root.Snapshot()
	c.Inc()
	seen := 0
	for _, v := range s.All() {
		assert.Zero(t, v)
		seen++
		break
	}
	assert.Equal(t, 1, seen)
}

func TestString_IsJSON(t *testing.T) {
	var c Counter
	c.Add(9)
	root := New("r\"")
	root.Child("x").Add("n", &c)
	var back Snapshot
	require.NoError(t, json.Unmarshal([]byte(root.String()), &back))
	assert.Equal(t, root.Snapshot(), back)
	assert.Equal(t, `{"name":"r\"","children":[{"name":"x","counters":[{"name":"n","n":9}]}]}`, root.String())
}

func TestNode_ManyGoroutines(t *testing.T) {
	root := New("r")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				var c Counter
				n := root.Child("ep")
				n.Add("n", &c)
				c.Inc()
				_ = root.String()
				n.Remove()
			}
		})
	}
	wg.Wait()
	assert.Empty(t, flat(root))
}

func BenchmarkCounter(b *testing.B) {
	var c Counter
	for b.Loop() {
		c.Inc()
	}
}

func ExampleNode() {
	var sends Counter
	root := New("ucp")
	root.Child("ep").Add("sends", &sends)
	sends.Add(3)
	for path, n := range root.Snapshot().All() {
		fmt.Println(path, n)
	}
	// Output: ucp/ep.sends 3
}
