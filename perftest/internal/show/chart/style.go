package chart

import (
	"image/color"

	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colors are those that people with any color vision can tell apart (Okabe and Ito 2008), without the
// yellow, which is hard to see on white.
var colors = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, // blue
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, // vermilion
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, // green
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, // purple
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, // orange
	color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, // sky
	color.RGBA{A: 0xff},
}

// layerColors are the places in colors of layers, which have the same color in all panels and files. Those of
// two undone remedies are the colors of verbs and uct, beside which they are rarely drawn.
var layerColors = map[string]int{"verbs": 0, "averbs": 3, "uct": 1, "ucp": 2,
	"ucp-resolve": 4, "ucp-idle-tx": 5, "ucp-idle-ud": 6, "ucp-resolve-idle-tx": 7, "ucp-resolve-idle-ud": 8}

// colorOf is the color of a name, or that of its place if the name has none of its own.
func colorOf(name string, place int) color.Color {
	i, ok := layerColors[name]
	if !ok {
		i = place
	}
	return colors[i%len(colors)]
}

// styleOf is the line and the mark of a series: the color says which layer it is, dashes and the shape
// of the marks which transport, by their places.
func styleOf(layer string, place, transport int) (draw.LineStyle, draw.GlyphStyle) {
	c := colorOf(layer, place)
	line := draw.LineStyle{Color: c, Width: vg.Points(1), Dashes: plotutil.Dashes(transport)}
	return line, draw.GlyphStyle{Color: c, Radius: vg.Points(2), Shape: plotutil.Shape(transport)}
}
