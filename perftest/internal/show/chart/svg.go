package chart

import (
	"fmt"
	"io"
)

// SVG draws panels one below the other and writes the picture.
func SVG(w io.Writer, panels []Lines) error {
	var drawn []*drawing
	for _, l := range panels {
		p, err := l.plot()
		if err != nil {
			return fmt.Errorf("plot %s: %w", l.Title, err)
		}
		drawn = append(drawn, p)
	}
	return render(w, true, drawn)
}
