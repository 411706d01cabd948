package timing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// polls returns the time of a thread for n polls without result.
func polls(t *testing.T, seed uint64, jitter Time, n int) Time {
	t.Helper()
	p := round()
	p.Jitter = jitter
	m := newModel(t, p)
	port := newPort(t, m, nil)
	ran, err := m.Run(seed, []Step{func() (bool, error) {
		port.poll()
		n--
		return n == 0, nil
	}})
	require.NoError(t, err)
	return ran[0].End - ran[0].Begin
}

// TestJitter: each call takes a random part of it in addition, which depends on the seed.
func TestJitter(t *testing.T) {
	const n, most = 1000, 20 * Nanosecond
	bare := polls(t, 1, 0, n)
	assert.Equal(t, n*round().PollCall, bare)
	assert.Equal(t, bare, polls(t, 2, 0, n), "without jitter the seed decides only when a thread starts")
	jittered := polls(t, 1, most, n) - bare
	assert.Equal(t, jittered+bare, polls(t, 1, most, n), "the same seed")
	assert.NotEqual(t, jittered+bare, polls(t, 2, most, n), "another seed")
	assert.InDelta(t, float64(n*most/2), float64(jittered), float64(n*most/10), "half of the maximum, on average")
}
