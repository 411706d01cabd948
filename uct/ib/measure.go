package ib

import (
	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// Measurer measures what the operations of an iface on the port cost, with attr; nil where the
// device moves the bytes, as fast as its link is.
func (p *Port) Measurer(attr *uct.IfaceAttr) uct.Measurer {
	if !p.Attr.InMemory {
		return nil
	}
	return measurer{attr}
}

type measurer struct{ attr *uct.IfaceAttr }

// Measure implements uct.Measurer. Messages go through receive buffers.
func (m measurer) Measure() uct.Measured { return base.Measured(m.attr, handover.Measure(), farCall) }
