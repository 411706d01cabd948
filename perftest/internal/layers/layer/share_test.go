package layer

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// thing counts its Close calls.
type thing struct{ number, closed int }

func (t *thing) Close() error { t.closed++; return nil }

func TestShare_OpensOnceAndClosesWithLastRelease(t *testing.T) {
	var s Share[*thing]
	opened := 0
	open := func() (*thing, error) {
		opened++
		return &thing{number: opened}, nil
	}
	a, releaseA, err := s.Get("x", open)
	require.NoError(t, err)
	b, releaseB, err := s.Get("x", open)
	require.NoError(t, err)
	other, releaseOther, err := s.Get("y", open)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 1, 2}, []int{a.number, b.number, other.number})

	require.NoError(t, releaseA())
	assert.Equal(t, 0, a.closed)
	require.NoError(t, releaseB())
	require.NoError(t, releaseOther())
	assert.Equal(t, []int{1, 1}, []int{a.closed, other.closed})
	assert.ErrorIs(t, releaseA(), errReleased)

	again, release, err := s.Get("x", open)
	require.NoError(t, err)
	assert.Equal(t, 3, again.number, "opened again after the last release")
	require.NoError(t, release())
}

func TestShare_FailedOpenIsNotStored(t *testing.T) {
	var s Share[*thing]
	why := errors.New("no device")
	_, _, err := s.Get("x", func() (*thing, error) { return nil, why })
	assert.ErrorIs(t, err, why)
	assert.Empty(t, s.open)
}
