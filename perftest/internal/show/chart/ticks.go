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
				t.Label = shortNumber(t.Value)
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

// spaced puts a space that is not dropped between labels and the axis on their right: readers of SVG may
// have a font whose digits are wider.
type spaced struct{ plot.Ticker }

// Ticks implements plot.Ticker.
func (s spaced) Ticks(lo, hi float64) []plot.Tick {
	ticks := s.Ticker.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label += "\u00a0"
		}
	}
	return ticks
}

// shortNumber prints thousands and millions with their letter, so that labels have few characters.
func shortNumber(v float64) string {
	letter := ""
	for _, unit := range []string{"k", "M", "G", "T"} {
		if v < 1000 {
			break
		}
		v, letter = v/1000, unit
	}
	return strconv.FormatFloat(v, 'g', 6, 64) + letter
}

// logMargin is by which factor a logarithmic axis goes beyond the points, so that the
// marks have room and one value still has a range.
const logMargin = 1.15

// logAxis makes an axis, whose range is known, logarithmic.
func logAxis(a *plot.Axis, ticks plot.Ticker) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, ticks
	a.Min, a.Max = a.Min/logMargin, a.Max*logMargin
}
