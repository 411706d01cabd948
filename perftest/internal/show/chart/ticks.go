package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// decades has ticks at 1, 2 and 5 times powers of ten on a logarithmic axis. Over few decades all have labels, over
// many only the powers. If an axis is so short that there would be fewer than two, it has round numbers in equal steps.
type decades struct{}

// fewDecades is the maximum number of decades with three labels each.
const fewDecades = 3

// Ticks implements plot.Ticker. lo must be positive.
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

// spaced adds a space between labels and the axis on their right that readers of SVG keep: they may use a font with
// wider digits.
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

// shortNumber formats thousands and millions with a letter, so that labels are short.
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

// logMargin is the factor by which a logarithmic axis extends beyond the points, so that marks fit and a single value
// has a range.
const logMargin = 1.15

// logAxis makes an axis with a known range logarithmic.
func logAxis(a *plot.Axis, ticks plot.Ticker) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, ticks
	a.Min, a.Max = a.Min/logMargin, a.Max*logMargin
}
