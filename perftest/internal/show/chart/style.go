package chart

import (
	"image/color"

	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// colors can be distinguished with any color vision (Okabe and Ito 2008). Yellow is omitted, because it has little
// contrast on white.
var colors = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, // blue
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, // vermilion
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, // green
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, // purple
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, // orange
	color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, // sky
	color.RGBA{A: 0xff},
}

// layerColors are the indexes in colors of layers, which have the same color in all panels and files. Variants with two
// remedies undone have the colors of verbs and uct, which are rarely in the same plot.
var layerColors = map[string]int{"verbs": 0, "averbs": 3, "uct": 1, "ucp": 2,
	"ucp-resolve": 4, "ucp-idle-tx": 5, "ucp-idle-ud": 6, "ucp-resolve-idle-tx": 7, "ucp-resolve-idle-ud": 8}

// colorOf returns the color of a name, or of its index if the name has no color of its own.
func colorOf(name string, place int) color.Color {
	i, ok := layerColors[name]
	if !ok {
		i = place
	}
	return colors[i%len(colors)]
}

// styleOf returns the line and the mark of a series: the color identifies the layer, dashes and marks the transport, by
// their indexes.
func styleOf(layer string, place, transport int) (draw.LineStyle, draw.GlyphStyle) {
	c := colorOf(layer, place)
	line := draw.LineStyle{Color: c, Width: vg.Points(1), Dashes: plotutil.Dashes(transport)}
	return line, draw.GlyphStyle{Color: c, Radius: vg.Points(2), Shape: plotutil.Shape(transport)}
}
