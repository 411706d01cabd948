package ib

import (
	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
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

// Measure implements uct.Measurer.
func (m measurer) Measure() uct.Measured { return measured(m.attr, handover.Measure()) }

// measured are the costs of an iface where processors hand bytes over for h: messages go through
// receive buffers, the rest reads and writes memory, by the kernel if that was not allocated. Where
// the kernel must not, the peer helps.
func measured(attr *uct.IfaceAttr, h handover.Costs) uct.Measured {
	m := uct.Measured{Costs: attr.Costs, RegReach: uct.Cost{Send: farCall, Bandwidth: h.Pass}, Assumed: !h.Measured}
	if h.Kernel > 0 {
		m.RegReach = uct.Cost{Send: h.Call, Bandwidth: h.Kernel}
	}
	for v := range uct.Variant(uct.NumVariants) {
		c := &m.Costs[v]
		switch {
		case c.Bandwidth == 0: // there is none, or the length does not count
		case v <= uct.AMZcopy || v == uct.QueueZcopy:
			c.Bandwidth, c.SharedBandwidth = h.Pass, 0
		default:
			c.Bandwidth, c.SharedBandwidth = h.Read, 0
		}
	}
	return m
}
