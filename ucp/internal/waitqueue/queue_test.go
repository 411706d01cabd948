package waitqueue

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// op is an operation; ordered are the odd ones.
type op int

func (x op) ordered() bool { return x%2 == 1 }

// TestQueue_EqualsSlices compares the queue with two slices: deferred operations and others.
func TestQueue_EqualsSlices(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var q Queue[op]
		var deferred, pending []op
		last := op(0)
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(*rapid.T) {
				last++
				q.Add(last)
				pending = append(pending, last)
			},
			"pop": func(rt *rapid.T) {
				if len(pending) == 0 {
					return
				}
				require.Equal(rt, pending[0], q.First())
				x := q.Pop()
				require.Equal(rt, pending[0], x)
				pending = pending[1:]
				switch waits := rapid.Bool().Draw(rt, "waits again"); {
				case waits && q.Passing():
					q.Defer(x, x.ordered())
					deferred = append(deferred, x)
				case waits:
					q.PutBack(x)
					pending = append([]op{x}, pending...)
				}
			},
			"begin pass": func(*rapid.T) { q.BeginPass() },
			"end pass": func(*rapid.T) {
				if q.Passing() && q.PassDone() {
					q.EndPass()
					pending, deferred = deferred, nil
					require.False(rt, q.Passing())
				}
			},
			"remove": func(rt *rapid.T) {
				require.False(rt, q.Remove(last+1, true))
				if all := slices.Concat(deferred, pending); len(all) > 0 {
					x := rapid.SampledFrom(all).Draw(rt, "which")
					require.True(rt, q.Remove(x, x.ordered()))
					is := func(y op) bool { return y == x }
					deferred, pending = slices.DeleteFunc(deferred, is), slices.DeleteFunc(pending, is)
				}
			},
			"replace": func(rt *rapid.T) {
				pending = slices.Concat(pending, deferred)
				deferred = nil
				q.Replace(slices.Clone(pending))
			},
			"take all": func(rt *rapid.T) {
				passing := q.Passing()
				require.True(rt, slices.Equal(slices.Concat(deferred, pending), q.TakeAll()))
				require.Equal(rt, passing, q.Passing())
				deferred, pending = nil, nil
			},
			"": func(rt *rapid.T) {
				require.Equal(rt, len(pending)+len(deferred) == 0, q.Empty())
				require.Equal(rt, len(pending) == 0, q.PassDone())
				require.True(rt, slices.Equal(pending, q.Pending()))
				require.True(rt, slices.Equal(slices.Concat(deferred, pending), slices.Collect(q.All)))
				require.True(rt, slices.Equal(deferred, q.Deferred()))
				n := 0
				for _, x := range deferred {
					if x.ordered() {
						n++
					}
				}
				require.Equal(rt, n, q.DeferredOrdered())
			},
		})
	})
}

func TestQueue_Nil(t *testing.T) {
	var q *Queue[op]
	assert.True(t, q.Empty())
}

// TestQueue_RemovedDuringPass: an operation that is removed before the pass reaches it leaves the deferred ones.
func TestQueue_RemovedDuringPass(t *testing.T) {
	var q Queue[op]
	for x := range op(3) {
		q.Add(x)
	}
	q.BeginPass()
	q.Defer(q.Pop(), false)
	q.Defer(q.Pop(), true)
	require.True(t, q.Remove(2, false))
	require.True(t, q.PassDone())
	q.EndPass()
	assert.Equal(t, []op{0, 1}, q.Pending())
}

// TestQueue_AllStops: All stops when its caller breaks.
func TestQueue_AllStops(t *testing.T) {
	var q Queue[op]
	q.Add(1)
	q.Add(2)
	for x := range q.All {
		assert.Equal(t, op(1), x)
		break
	}
}

// TestQueue_Reuses: a queue of at most two operations does not grow.
func TestQueue_Reuses(t *testing.T) {
	var q Queue[op]
	q.Add(0)
	testenv.NoAllocs(t, "add and pop", func() {
		q.Add(1)
		q.Pop()
	})
	require.LessOrEqual(t, cap(q.list), 4)
}
