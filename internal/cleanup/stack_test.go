package cleanup

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// record returns a step that notes its name and returns err.
func record(log *[]string, name string, err error) func() error {
	return func() error {
		*log = append(*log, name)
		return err
	}
}

func TestRun_ReverseOrderAllStepsOnce(t *testing.T) {
	var s Stack
	var log []string
	errA, errC := errors.New("a"), errors.New("c")
	s.Add(record(&log, "a", errA))
	s.Add(nil)
	s.Add(record(&log, "b", nil))
	s.Add(record(&log, "c", errC))
	assert.Equal(t, 3, s.Len())

	err := s.Run()
	assert.Equal(t, []string{"c", "b", "a"}, log)
	assert.ErrorIs(t, err, errA)
	assert.ErrorIs(t, err, errC)
	assert.Equal(t, "c\na", err.Error())

	assert.NoError(t, s.Run(), "nothing is left")
	assert.Len(t, log, 3)
}

func TestRun_EmptyStack(t *testing.T) {
	var s Stack
	assert.NoError(t, s.Run())
}

func TestRun_StepsMayAdd(t *testing.T) {
	var s Stack
	var log []string
	s.Add(record(&log, "first", nil))
	s.Add(func() error {
		s.Add(record(&log, "added", nil))
		return nil
	})
	require.NoError(t, s.Run())
	assert.Equal(t, []string{"added", "first"}, log)
}

func TestRun_ContinuesAfterPanic(t *testing.T) {
	var s Stack
	var log []string
	s.Add(record(&log, "below", nil))
	s.Add(func() error { panic("step") })
	assert.PanicsWithValue(t, "step", func() { _ = s.Run() })
	require.NoError(t, s.Run())
	assert.Equal(t, []string{"below"}, log)
}

func TestRelease_ReturnsSteps(t *testing.T) {
	var s Stack
	var log []string
	s.Add(record(&log, "a", nil))
	kept := s.Release()
	require.NoError(t, s.Run())
	assert.Empty(t, log, "released steps must not run")
	s.Add(record(&log, "new", nil))
	require.NoError(t, kept.Run())
	require.NoError(t, s.Run())
	assert.Equal(t, []string{"a", "new"}, log)
}
