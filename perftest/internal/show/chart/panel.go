package chart

import (
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	panelWidth  = 16 * vg.Centimeter // without the legend
	panelHeight = 9 * vg.Centimeter
	panelGap    = 5 * vg.Millimeter

	titleSize = 11 // points
	labelSize = 9

	// legendRoom is the width of a legend relative to that of its text: a reader may replace the font by a wider one.
	legendRoom = 1.2
)

// drawing is a plot with its legend beside it, so that the legend hides no curve.
type drawing struct {
	*plot.Plot
	legend plot.Legend
}

func newDrawing(title, x, y string) *drawing {
	d := &drawing{Plot: plot.New(), legend: plot.NewLegend()}
	d.Title.Text, d.X.Label.Text, d.Y.Label.Text = title, x, y
	d.Title.TextStyle.Font.Size = titleSize
	// Readers of SVG may use another font, with wider digits.
	d.X.Tick.Label.Font.Size, d.Y.Tick.Label.Font.Size = labelSize, labelSize
	d.Title.Padding, d.Y.Padding = vg.Points(4), vg.Points(6)
	d.legend.Left, d.legend.Top, d.legend.Padding = true, true, vg.Millimeter
	return d
}

// render draws the panels one below the other.
func render(w io.Writer, svg bool, panels []*drawing) error {
	var beside vg.Length
	for _, p := range panels {
		p.Y.Tick.Marker = spaced{p.Y.Tick.Marker}
		beside = max(beside, p.legend.Rectangle(draw.Canvas{}).Size().X*legendRoom)
	}
	width, height := panelWidth+beside, panelHeight*vg.Length(len(panels))
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if svg {
		canvas = vgsvg.New(width, height)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.New(width, height)}
	}
	all := draw.New(canvas)
	for i, left := range align(panels, draw.Crop(all, 0, -beside-panelGap, 0, 0)) {
		panels[i].Draw(left)
		right := left
		right.Min.X, right.Max.X = all.Max.X-beside-panelGap, all.Max.X
		right.Max.Y -= panels[i].Title.TextStyle.Font.Size * 2 // beside the axes
		panels[i].legend.Draw(right)
	}
	_, err := canvas.WriteTo(w)
	return err
}

// align divides the canvas so that the axes of the panels are aligned.
func align(panels []*drawing, all draw.Canvas) (canvases []draw.Canvas) {
	rows := make([][]*plot.Plot, len(panels))
	for i, p := range panels {
		rows[i] = []*plot.Plot{p.Plot}
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadX: panelGap, PadY: panelGap,
		PadTop: panelGap, PadBottom: panelGap, PadLeft: panelGap, PadRight: panelGap}
	for _, row := range plot.Align(rows, tiles, all) {
		canvases = append(canvases, row[0])
	}
	return canvases
}
