package bench

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/layertest"
	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// tally is a Counter that records its calls.
type tally struct {
	running    bool
	stops      int
	start, end error
	onStart    func()
}

func (c *tally) Start() error {
	if c.onStart != nil {
		c.onStart()
	}
	c.running = true
	return c.start
}

func (c *tally) Stop(ops int) (*result.Counters, error) {
	c.running = false
	c.stops++
	return &result.Counters{Ops: ops}, c.end
}

func TestCount_EveryTest(t *testing.T) {
	if testing.Short() {
		t.Skip("other tests have each type of operation")
	}
	r := newRunner(t.Context(), t, smallPlan(t, TestNames()...), layertest.Set("verbs", "uct", "ucp"))
	records, err := r.Run(t.Context())
	require.NoError(t, err)
	c := &tally{}
	records, err = r.Count(t.Context(), c, records)
	require.NoError(t, err)
	assert.Equal(t, len(records), c.stops)
	for _, rec := range records {
		require.NotNil(t, rec.Counters, rec.Test)
		assert.Equal(t, rec.Ops, rec.Counters.Ops, rec.Test)
	}
}

func TestCount_Errors(t *testing.T) {
	broken := errors.New("counter is broken")
	for name, c := range map[string]*tally{"start": {start: broken}, "stop": {end: broken}} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t.Context(), t, smallPlan(t, "put_lat"), layertest.Set("uct", "verbs", "ucp"))
			records, err := r.Run(t.Context())
			require.NoError(t, err)
			_, err = r.Count(t.Context(), c, records)
			require.ErrorIs(t, err, broken)
			assert.ErrorContains(t, err, "put_lat of 1 bytes: verbs")
		})
	}
}

func TestCount_EndsWithContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := newRunner(ctx, t, smallPlan(t, "put_lat"), layertest.Set("verbs", "uct", "ucp"))
	records, err := r.Run(ctx)
	require.NoError(t, err)
	c := &tally{onStart: func() { cancel(why) }}
	left, err := r.Count(ctx, c, records)
	require.ErrorIs(t, err, why)
	assert.False(t, c.running, "the counter still runs")
	assert.Len(t, left, len(records), "the records without counters were timed")
	assert.Nil(t, left[0].Counters)
}

// TestCount_VerifiesData: an operation fails while it is counted, after it was timed.
func TestCount_VerifiesData(t *testing.T) {
	r := newRunner(t.Context(), t, smallPlan(t, "put_lat"), layertest.Set("verbs", "uct", "ucp"))
	records, err := r.Run(t.Context())
	require.NoError(t, err)
	c := &tally{}
	c.onStart = func() { r.lanes[0].conn.Local()[0]++ }
	left, err := r.Count(t.Context(), c, records)
	require.ErrorIs(t, err, ErrData)
	require.Len(t, left, len(records)-1, "a result of the failed operation")
	assert.Equal(t, "uct", left[0].Layer)
	assert.Nil(t, left[0].Counters)
}
