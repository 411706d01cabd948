package compare

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMetric_RatioAndGoal(t *testing.T) {
	for _, c := range []struct {
		m           Metric
		ours, ucx   float64
		ratio, goal float64
		reached     bool
	}{
		{Time, 50, 100, 0.5, 0.6, true},
		{Time, 60, 100, 0.6, 0.6, true},
		{Time, 70, 100, 0.7, 0.6, false},
		{Rate, 10, 100, 10, 10, true},
		{Rate, 20, 100, 5, 10, false},
		{Bandwidth, 100, 120, 1.2, 1.2, true},
		{Bandwidth, 100, 90, 0.9, 1, false},
	} {
		got := c.m.ratio(c.ours, c.ucx)
		assert.InDelta(t, c.ratio, got, 1e-9)
		assert.Equal(t, c.reached, c.m.reached(got, c.goal), "%v %v", c.m, got)
	}
}

func TestFigure_Text(t *testing.T) {
	for _, c := range []struct {
		m    Metric
		f    Figure
		want string
	}{
		{Time, Figure{5.126, 5, 6}, "5.13 ns [5.00..6.00]"},
		{Time, Figure{84.26, 80, 90.04}, "84.3 ns [80.0..90.0]"},
		{Time, Figure{3640, 3300, 10500}, "3640 ns [3300..10500]"},
		{Time, Figure{17200, 9000, 18000}, "17.2 us [9.00..18.0]"},
		{Rate, Figure{22.04, 20, 25}, "22.0 M/s [20.0..25.0]"},
		{Bandwidth, Figure{7.7, 7, 8}, "7.70 GB/s [7.00..8.00]"},
	} {
		assert.Equal(t, c.want, c.f.median(c.m)+" ["+c.f.limits(c.m)+"]")
	}
}
