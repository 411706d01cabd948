// Package chart draws results by message size: one panel for each test, and below
// it what each layer adds to the one below.
package chart

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"

	"github.com/gucx/gucx/perftest/internal/measure/result"
)

// ErrNothing says that no test was run at two sizes or more.
var ErrNothing = errors.New("nothing to draw: no test has two sizes or more")

// Check refuses a file that Save could not write: its name must end in the name of a
// format, and it must be possible to open it. A file that was not there is not there
// afterwards.
func Check(file string) error {
	if err := checkName(file); err != nil {
		return err
	}
	_, missing := os.Stat(file)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	err = f.Close()
	if errors.Is(missing, os.ErrNotExist) {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

func checkName(file string) error {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".svg", ".png":
		return nil
	}
	return fmt.Errorf("plot %q: the name must end in .svg or .png", file)
}

// Save draws records into a file, whose name must pass Check.
func Save(file string, records []result.Record) error {
	if err := checkName(file); err != nil {
		return err
	}
	panels, err := panelsOf(records)
	if err != nil {
		return err
	}
	return save(file, panels)
}

// save writes drawings into a file.
func save(file string, panels []*drawing) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return render(f, strings.EqualFold(filepath.Ext(file), ".svg"), panels)
}

// figure is what a panel shows of a record; without ok it has no such point.
type figure func(result.Record) (y float64, ok bool)

func totalNS(r result.Record) (float64, bool)  { return r.P50NS, r.P50NS > 0 }
func mibPerS(r result.Record) (float64, bool)  { return r.MiBPerS, r.MiBPerS > 0 }
func overhead(r result.Record) (float64, bool) { return r.OverPct, r.Over != "" }

// panelsOf makes the panels for every test with at least two sizes.
func panelsOf(records []result.Record) (panels []*drawing, err error) {
	for _, test := range swept(records) {
		mine := slices.DeleteFunc(slices.Clone(records), func(r result.Record) bool { return r.Test != test })
		top := panel{title: test, y: "bandwidth, MiB/s", value: mibPerS, logY: true}
		if mine[0].Latency() {
			top = panel{title: test, y: "median latency, ns", value: totalNS, logY: true}
		}
		below := panel{title: test + ": overhead of each layer over the one below", y: "%", value: overhead}
		for _, p := range []panel{top, below} {
			drawn, err := p.plot(mine)
			if err != nil {
				return nil, err
			}
			if drawn != nil {
				panels = append(panels, drawn)
			}
		}
	}
	if len(panels) == 0 {
		return nil, ErrNothing
	}
	return panels, nil
}

// swept lists the tests that have at least two sizes.
func swept(records []result.Record) (tests []string) {
	first := map[string]int{}
	for _, r := range records {
		size, seen := first[r.Test]
		if !seen {
			first[r.Test] = r.Size
		} else if size != r.Size && !slices.Contains(tests, r.Test) {
			tests = append(tests, r.Test)
		}
	}
	return tests
}

// panel is one plot to be made.
type panel struct {
	title, y string
	value    figure
	logY     bool
}

// plot draws a line for each layer that has points; nil if none has.
func (p panel) plot(records []result.Record) (*drawing, error) {
	out := newDrawing(p.title, "message size, bytes", p.y)
	out.Add(plotter.NewGrid())
	lines := 0
	for i, layer := range result.Layers(records) {
		points := p.points(records, layer)
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("plot %s of %s: %w", p.title, layer, err)
		}
		line.Color, marks.Color, marks.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		out.Add(line, marks)
		out.legend.Add(layer, line, marks)
		lines++
	}
	if lines == 0 {
		return nil, nil
	}
	logAxis(&out.X, sizeTicks{})
	if p.logY {
		logAxis(&out.Y, decades{})
	}
	return out, nil
}

func (p panel) points(records []result.Record, layer string) (xys plotter.XYs) {
	for _, r := range records {
		if y, ok := p.value(r); ok && r.Layer == layer && r.Size > 0 {
			xys = append(xys, plotter.XY{X: float64(r.Size), Y: y})
		}
	}
	return xys
}

// sizeTicks marks powers of two and names every second of them.
type sizeTicks struct{}

// Ticks implements plot.Ticker.
func (sizeTicks) Ticks(lo, hi float64) (ticks []plot.Tick) {
	units := []string{"", "Ki", "Mi", "Gi"}
	for exp := 0; exp < 10*len(units); exp++ {
		v := float64(uint64(1) << exp)
		if v < lo || v > hi {
			continue
		}
		t := plot.Tick{Value: v}
		if exp%2 == 0 || lo*16 > hi {
			t.Label = fmt.Sprintf("%d%s", 1<<(exp%10), units[exp/10])
		}
		ticks = append(ticks, t)
	}
	return ticks
}
