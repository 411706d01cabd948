package compare

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// probes is a probe that returns values in order; the last one again and again.
func probes(looks *int, ns ...float64) func() (float64, error) {
	return func() (float64, error) {
		*looks++
		return ns[min(*looks, len(ns))-1], nil
	}
}

func TestPhase_AwaitsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		p := phase{probe: probes(&looks, 300, 300, 60), limit: 100}
		ns, err := p.await(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, 60, ns, 0)
		assert.Equal(t, 3, looks)

		looks = 0
		p = phase{probe: probes(&looks, 300), limit: 100}
		ns, err = p.await(t.Context())
		require.NoError(t, err, "the pair is dropped later")
		assert.InDelta(t, 300, ns, 0)
		assert.Equal(t, nearLooks, looks)
	})
}

func TestPhase_LearnsWhatIsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		p := phase{probe: probes(&looks, 130, 400, 50, 60)}
		assert.Greater(t, p.near(), 1e9, "nothing is known")
		require.NoError(t, p.learn(t.Context()))
		assert.InDelta(t, 100, p.near(), 1e-9)
		assert.Equal(t, nearLooks, looks)
		p.limit = 100
		assert.InDelta(t, 100, p.near(), 0, "a limit that was given")
	})
}

func TestPhase_Fails(t *testing.T) {
	broken := errors.New("probe")
	p := phase{probe: func() (float64, error) { return 0, broken }}
	_, err := p.await(t.Context())
	require.ErrorIs(t, err, broken)
	assert.Greater(t, p.near(), 1e9)

	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	looks := 0
	p = phase{probe: probes(&looks, 300), limit: 100}
	require.ErrorIs(t, p.learn(ctx), why)
	_, err = p.await(ctx)
	assert.ErrorIs(t, err, why)
}
