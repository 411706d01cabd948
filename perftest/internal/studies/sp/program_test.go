package sp

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// route is the key of matching.
type route struct{ from, to, tag int }

// progress is the position of a rank in its program.
type progress struct {
	events []Event
	next   int
	wait   []Event // receives since the last Wait
}

// network has messages that were sent and not yet received.
type network map[route][]int

// advance runs the program until a Wait lacks a message, and reports whether it has executed anything.
func (p *progress) advance(t *testing.T, rank int, n network) (moved bool) {
	for ; p.next < len(p.events); p.next++ {
		switch e := p.events[p.next]; e.Kind {
		case PostSend:
			r := route{rank, e.Peer, e.Tag}
			n[r] = append(n[r], e.Bytes)
		case PostRecv:
			p.wait = append(p.wait, e)
		case Wait:
			for len(p.wait) > 0 {
				e := p.wait[0]
				r := route{e.Peer, rank, e.Tag}
				if len(n[r]) == 0 {
					return moved
				}
				require.Equal(t, e.Bytes, n[r][0], "%v", r)
				n[r], p.wait = n[r][1:], p.wait[1:]
			}
		}
		moved = true
	}
	return moved
}

// All programs together reach their ends, every message is received, and all work is in them.
func TestProgram(t *testing.T) {
	for _, c := range []struct {
		class string
		ranks int
	}{{"S", 1}, {"S", 4}, {"W", 9}, {"B", 64}, {"C", 64}} {
		t.Run(fmt.Sprint(c.class, c.ranks), func(t *testing.T) {
			class := classOf(t, c.class)
			all := make([]*progress, c.ranks)
			var amount [Works]int
			for i := range all {
				events, err := Program(class, c.ranks, i)
				require.NoError(t, err)
				all[i] = &progress{events: events}
				for _, e := range events {
					if e.Kind == Compute {
						amount[e.Work] += e.Amount
					}
				}
			}
			n := network{}
			for moved := true; moved; {
				moved = false
				for i, p := range all {
					moved = p.advance(t, i, n) || moved
				}
			}
			for i, p := range all {
				assert.Equal(t, len(p.events), p.next, "rank %d stops at %+v", i, p.next)
				assert.Empty(t, p.wait)
			}
			for r, left := range n {
				assert.Empty(t, left, "%v", r)
			}
			inner := class.Grid - 2
			assert.Equal(t, class.Grid*class.Grid*class.Grid, amount[Derive])
			assert.Equal(t, inner*inner*inner, amount[Residual])
			assert.Equal(t, 3*inner*inner*inner, amount[Rotate])
			assert.Equal(t, 3*inner*inner*class.Grid, amount[Eliminate])
			assert.Equal(t, amount[Pack], amount[Unpack])
		})
	}
}

func TestProgram_Refuses(t *testing.T) {
	for _, rank := range []int{-1, 4} {
		_, err := Program(classOf(t, "S"), 4, rank)
		assert.ErrorContains(t, err, "of 4")
	}
	_, err := Program(classOf(t, "S"), 0, 0)
	assert.Error(t, err)
}

func TestMeasure(t *testing.T) {
	did := 0
	c, err := Measure(t.Context(), classOf(t, "S"), 4, 2, func() { did++ })
	require.NoError(t, err)
	for w, cost := range c {
		assert.Positive(t, cost, "%v", Work(w))
		assert.Positive(t, c.Time(Event{Work: Work(w), Amount: 1000}))
	}
	assert.Equal(t, 3, did)
	_, err = Measure(t.Context(), classOf(t, "S"), 25, 1, func() {})
	assert.ErrorContains(t, err, "different sizes")
}

// TestMeasure_EndsWithContext: a measurement of a large class, which takes minutes, ends with its context.
func TestMeasure_EndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	_, err := Measure(ctx, classOf(t, "S"), 4, 1000, func() {
		steps++
		cancel()
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, steps)
}

// A step on one rank takes the time of its points.
func TestCosts(t *testing.T) {
	events, err := Program(classOf(t, "A"), 1, 0)
	require.NoError(t, err)
	sum := func(c Costs) (total time.Duration) {
		for _, e := range events {
			if e.Kind == Compute {
				total += c.Time(e)
			}
		}
		return total
	}
	a := ClassA
	perPoint := a[Derive] + a[Residual] + a[Characteristic] + a[Update] + 3*(a[Assemble]+a[Eliminate]+a[Substitute]+a[Rotate])
	assert.InEpsilon(t, perPoint*64*64*64, float64(sum(a)), 0.1, "the boundary is not computed")
	assert.InEpsilon(t, float64(2*sum(a)), float64(sum(a.Scaled(2))), 1e-6)
}
