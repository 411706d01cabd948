package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// decades marks 1, 2 and 5 times powers of ten on a logarithmic axis. Over few decades
// all of them have a label, over many the powers alone. Where the axis is so short that
// they are less than two, round numbers in equal steps take their place.
type decades struct{}

// fewDecades is how many decades may have three labels each.
const fewDecades = 3

// Ticks implements plot.Ticker. lo is positive.
func (decades) Ticks(lo, hi float64) []plot.Tick {
	few := math.Log10(hi/lo) <= fewDecades
	var ticks []plot.Tick
	labels := 0
	for exp := math.Floor(math.Log10(lo)); exp <= math.Ceil(math.Log10(hi)); exp++ {
		for _, factor := range []float64{1, 2, 5} {
			t := plot.Tick{Value: factor * math.Pow(10, exp)}
			if t.Value < lo || t.Value > hi {
				continue
			}
			if few || factor == 1 {
				t.Label = strconv.FormatFloat(t.Value, 'g', 6, 64)
				labels++
			}
			ticks = append(ticks, t)
		}
	}
	if labels < 2 {
		return plot.DefaultTicks{}.Ticks(lo, hi)
	}
	return ticks
}

// logMargin is by which factor a logarithmic axis goes beyond the points, so that the
// marks have room and one value still has a range.
const logMargin = 1.15

// logAxis makes an axis, whose range is known, logarithmic.
func logAxis(a *plot.Axis, ticks plot.Ticker) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, ticks
	a.Min, a.Max = a.Min/logMargin, a.Max*logMargin
}
