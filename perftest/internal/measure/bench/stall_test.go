package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/layers/layertest"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
)

func TestStallWatch_ReportsAStallOnce(t *testing.T) {
	var w stallWatch
	for range 3 * stallLooks {
		assert.False(t, w.look(), "no layer runs")
	}
	l := &lane{}
	w.begin(l)
	for range 3 * stallLooks {
		l.moves++
		assert.False(t, w.look(), "operations complete")
	}
	for range 2 {
		found := 0
		for range 3 * stallLooks {
			if w.look() {
				found++
			}
		}
		assert.Equal(t, 1, found)
		l.moves++ // it continues, and stalls again
	}
}

func TestStallWatch_InterruptsOnlyLongTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w stallWatch
		ticks, stop := make(chan time.Time), make(chan struct{})
		defer close(stop)
		raised := 0
		go w.interrupt(ticks, stop, func() { raised++ })
		synctest.Wait()
		for range 5 {
			w.begin(nil)
			ticks <- time.Time{}
			synctest.Wait()
		}
		assert.Zero(t, raised, "each turn was shorter than the limit")
		for i := range 2 {
			ticks <- time.Time{}
			synctest.Wait()
			assert.Equal(t, i+1, raised)
		}
	})
}

// TestRun_WithoutAStallReportsNothing also checks that the loops count operations.
func TestRun_WithoutAStallReportsNothing(t *testing.T) {
	r := newRunner(t.Context(), t, smallPlan(t, "put_lat", "am_bw"), layertest.Set("verbs", "uct", "ucp"))
	out := &strings.Builder{}
	r.Stalls, r.StallLimit = out, time.Hour
	_, err := r.Run(t.Context())
	require.NoError(t, err)
	assert.Empty(t, out.String())
	for _, l := range r.lanes {
		assert.Positive(t, l.moves)
	}
	assert.Greater(t, r.stall.turns.Load(), uint64(r.Plan.Rounds))
}

// reports cancels a run at its first report of a stall.
type reports struct {
	text string
	end  context.CancelCauseFunc
}

var errReported = errors.New("reported")

func (r *reports) Write(b []byte) (int, error) {
	r.text += string(b)
	r.end(errReported)
	return len(b), nil
}

func TestRun_ReportsStallWithStateOfBothSides(t *testing.T) {
	for _, test := range []string{"put_lat", "am_lat"} {
		t.Run(test, func(t *testing.T) {
			layers := layertest.Set("verbs", "uct", "ucp")
			layers.Open["uct"] = layertest.Opener(layertest.StallFlush)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			r := newRunner(ctx, t, smallPlan(t, test), layers)
			out := &reports{end: cancel}
			r.Stalls, r.StallLimit = out, 2*time.Second // the target has as long to answer
			_, err := r.Run(r.Session.Context())
			require.ErrorIs(t, err, errReported)
			assert.Contains(t, out.text, "STALLED: "+test+" of 1 bytes, layer uct, transport copy: no operation has completed for 2s")
			assert.Regexp(t, `(?s)initiator:\n  memory of 8192 bytes\ntarget, process \d+:\n  memory of 8192 bytes\n$`, out.text)
		})
	}
}

// TestTargetState_DriveContinuesAfterIt: a request for the state does not end a Drive.
func TestTargetState_DriveContinuesAfterIt(t *testing.T) {
	layers := layertest.Set("ucp")
	layers.Open["ucp"] = layertest.Opener(layertest.NeedDrive)
	s := newRunner(t.Context(), t, Plan{}, layers).Session
	c, err := s.Open(t.Context(), "ucp", oob.Params{Fabric: "none", MemLen: 64})
	require.NoError(t, err)
	op, err := c.Op(layer.Spec{Kind: layer.Put, Size: 8, Window: 1})
	require.NoError(t, err)
	require.NoError(t, s.Drive(t.Context(), "ucp"))
	for range 3 {
		text, err := s.TargetState(t.Context(), "ucp", time.Minute)
		require.NoError(t, err)
		require.Equal(t, "memory of 64 bytes\n", text)
		require.NoError(t, op.Post())
		require.NoError(t, op.Flush(), "the flush waits for progress of the target")
	}
	require.NoError(t, s.Rest(t.Context()))
	_, err = s.TargetState(t.Context(), "ucp", time.Minute)
	require.NoError(t, err)
}
