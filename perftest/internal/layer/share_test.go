package layer

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShare_OpensOnceAndClosesWithTheLast(t *testing.T) {
	var s Share[int]
	opened, closed := 0, 0
	open := func() (int, func() error, error) {
		opened++
		return opened, func() error { closed++; return nil }, nil
	}
	a, releaseA, err := s.Get("x", open)
	require.NoError(t, err)
	b, releaseB, err := s.Get("x", open)
	require.NoError(t, err)
	other, releaseOther, err := s.Get("y", open)
	require.NoError(t, err)
	assert.Equal(t, []int{1, 1, 2}, []int{a, b, other})

	require.NoError(t, releaseA())
	assert.Equal(t, 0, closed)
	require.NoError(t, releaseB())
	require.NoError(t, releaseOther())
	assert.Equal(t, 2, closed)
	assert.ErrorIs(t, releaseA(), errReleased)

	again, release, err := s.Get("x", open)
	require.NoError(t, err)
	assert.Equal(t, 3, again, "opened anew after the last release")
	require.NoError(t, release())
}

func TestShare_FailedOpenLeavesNothing(t *testing.T) {
	var s Share[int]
	why := errors.New("no device")
	_, _, err := s.Get("x", func() (int, func() error, error) { return 0, nil, why })
	assert.ErrorIs(t, err, why)
	assert.Empty(t, s.open)
}
