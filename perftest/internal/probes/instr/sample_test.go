package instr

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func collect(totals ...int) Sample {
	var c collector
	for _, n := range totals {
		c.add(Profile{{Part: UCT}: n, {Part: harness}: 7}, n/100, noKinds)
	}
	return c.sample()
}

func TestSample(t *testing.T) {
	for _, tc := range []struct {
		name   string
		totals []int
		want   int
		exact  bool
	}{
		{"all equal", []int{40, 40, 40}, 40, true},
		{"one", []int{40}, 40, true},
		{"commonest", []int{1300, 40, 38, 40}, 40, false},
		{"as common as another", []int{300, 40, 300, 40}, 40, false},
		{"all differ", []int{90, 40, 41}, 40, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := collect(tc.totals...)
			assert.Equal(t, tc.want, s.Total())
			assert.Equal(t, tc.exact, s.Exact())
			assert.Equal(t, len(tc.totals), s.Reps)
			assert.Equal(t, tc.want/100, s.Syscalls)
			for _, n := range tc.totals {
				assert.LessOrEqual(t, s.Min, n)
				assert.GreaterOrEqual(t, s.Max, n)
			}
		})
	}
}

func TestSample_DeviceDecidesAmongEqualTotals(t *testing.T) {
	var c collector
	for _, device := range []int{500, 80, 80} {
		c.add(Profile{{Part: UCT}: 40, {Part: Device}: device}, 0, noKinds)
	}
	s := c.sample()
	assert.Equal(t, 120, s.Profile.WithDevice())
	assert.True(t, s.Exact(), "the layers have executed the same instructions each time")
}

func TestSample_Nothing(t *testing.T) {
	s := collect()
	assert.Zero(t, s.Total())
	assert.False(t, s.Exact())
	assert.Nil(t, s.Profile)
}
