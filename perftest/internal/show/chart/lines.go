package chart

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
)

// Lines is a panel with a line for each series, over a few numbers that double.
type Lines struct {
	Title, X, Y string
	LogY        bool // the Y axis starts at 0
	Series      []Series
}

// Series is one line.
type Series struct {
	Name string
	X, Y []float64 // of equal length
}

// Add adds a point to the line with a name.
func (l *Lines) Add(name string, x, y float64) {
	i := slices.IndexFunc(l.Series, func(s Series) bool { return s.Name == name })
	if i < 0 {
		i = len(l.Series)
		l.Series = append(l.Series, Series{Name: name})
	}
	s := &l.Series[i]
	s.X, s.Y = append(s.X, x), append(s.Y, y)
}

// SaveLines plots panels, one below the other, into a file. The name must pass Check.
func SaveLines(file string, panels []Lines) error {
	if err := checkName(file); err != nil {
		return err
	}
	if len(panels) == 0 {
		return errors.New("nothing to draw")
	}
	var plots []*drawing
	for _, l := range panels {
		p, err := l.plot()
		if err != nil {
			return fmt.Errorf("plot %s: %w", l.Title, err)
		}
		plots = append(plots, p)
	}
	return save(file, plots)
}

func (l *Lines) plot() (*drawing, error) {
	out := newDrawing(l.Title, l.X, l.Y)
	if !l.LogY {
		out.Y.Min = 0
	}
	out.Add(plotter.NewGrid())
	for i, s := range l.Series {
		points := make(plotter.XYs, len(s.X))
		for j := range points {
			points[j] = plotter.XY{X: s.X[j], Y: s.Y[j]}
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		line.LineStyle, marks.GlyphStyle = styleOf(s.Name, i, 0)
		marks.Shape = plotutil.Shape(i)
		out.Add(line, marks)
		out.legend.Add(s.Name, line, marks)
	}
	logAxis(&out.X, l.ticks())
	out.Y.Tick.Marker = wholeNumbers{}
	if l.LogY {
		logAxis(&out.Y, decades{})
	}
	return out, nil
}

// mostNumbers is the largest number that is written in digits below an axis; larger ones have the form 4Ki.
const mostNumbers = 512

// ticks sets the ticks of the X axis.
func (l *Lines) ticks() plot.Ticker {
	for _, s := range l.Series {
		if len(s.X) > 0 && slices.Max(s.X) > mostNumbers {
			return sizeTicks{}
		}
	}
	return doublings{}
}

// doublings has ticks at powers of two.
type doublings struct{}

// Ticks implements plot.Ticker.
func (doublings) Ticks(lo, hi float64) (ticks []plot.Tick) {
	for n := 1; float64(n) <= hi; n *= 2 {
		if float64(n) >= lo {
			ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
		}
	}
	return ticks
}

// wholeNumbers has ticks at equal steps, without decimals if all are zero.
type wholeNumbers struct{ plot.DefaultTicks }

// Ticks implements plot.Ticker.
func (t wholeNumbers) Ticks(lo, hi float64) []plot.Tick {
	ticks := t.DefaultTicks.Ticks(lo, hi)
	for i := range ticks {
		if whole, decimals, ok := strings.Cut(ticks[i].Label, "."); ok && strings.Trim(decimals, "0") == "" {
			ticks[i].Label = whole
		}
	}
	return ticks
}
