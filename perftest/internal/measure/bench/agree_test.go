package bench

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/layertest"
	"github.com/gucx/gucx/perftest/internal/measure/stat"
	"github.com/gucx/gucx/perftest/internal/measure/tick"
)

// chase is an operation that ends with dependent loads, as a ping-pong does: each needs the value of the previous
// one, so the CPU cannot execute them in parallel. If a reading of the counter does not wait for them, it is too
// early.
type chase struct {
	next [64]uint32
	at   uint32
}

// steps is the number of loads of an operation: about 300 ns, less than the fastest round trip between two CPUs.
const steps = 160

func newChase() *chase {
	c := &chase{}
	for i := range c.next {
		c.next[i] = uint32(i+17) % uint32(len(c.next))
	}
	return c
}

func (c *chase) Post() error { return nil }

func (c *chase) Flush() error {
	at := c.at
	for range steps {
		if at = c.next[at%uint32(len(c.next))]; at == math.MaxUint32 {
			return layer.ErrData
		}
	}
	c.at = at
	return nil
}

func (c *chase) Poll() error    { return nil }
func (c *chase) Result() uint64 { return 0 }

// independent measures the time of one operation and its loop with the monotonic clock, which it reads before
// and after many operations. It returns the shortest of several tries.
func independent(t *testing.T, op layer.Op) float64 {
	const tries, ops = 50, 500
	best := math.MaxFloat64
	for range tries {
		start := time.Now()
		for range ops {
			if op.Post() != nil || op.Flush() != nil {
				t.Fatal("the operation fails")
			}
		}
		best = min(best, float64(time.Since(start).Nanoseconds())/ops)
	}
	return best
}

// The median Total, the Mean, and a loop without shared code agree within 5 percent in the median of many tries:
// other load affects some tries, but an error of the readings affects most.
func TestTotal_AgreesWithTheMean(t *testing.T) {
	if !testenv.Soak() {
		t.Skip("only with GUCX_TEST_SOAK=1: other load on the CPUs affects the result")
	}
	clock, err := tick.Calibrate()
	require.NoError(t, err)
	const tries, limit = 11, 0.05
	var median, mean []float64 // relative to the other loop
	for range tries {
		c, err := layertest.Opener(layertest.None)(layer.Config{MemLen: 8})
		require.NoError(t, err)
		l := &lane{name: "chase", conn: c, op: newChase(), s: newSamples(2000, 20)}
		r := &Runner{Plan: Plan{Rounds: 20}, Clock: clock, costs: map[int]cost{}, lanes: []*lane{l}}
		p := pace{windows: 100, window: 1, every: 1, samples: 100}
		for range r.Plan.Rounds {
			require.NoError(t, l.s.batch(l.op, p))
		}
		rec := r.records(Test{Name: "chase", Kind: layer.Put}, 8, p, r.lanes)[0]
		other := independent(t, l.op) - independent(t, &nothing{})
		median, mean = append(median, rec.P50NS/other), append(mean, rec.LeastNS/other)
	}
	assert.InDelta(t, 1, stat.Median(median), limit, "medians %.2f", median)
	assert.InDelta(t, 1, stat.Median(mean), limit, "smallest Means %.2f", mean)
}
