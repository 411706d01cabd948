package sm

import (
	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/cost"
)

// Measure implements uct.Measurer: how fast processors of this machine hand bytes over. The peer
// helps by copying into the segments, or out of them.
func (it *Iface) Measure() uct.Measured {
	return measured(&it.attr, handover.Measure(), it.cfg.CMA != config.No)
}

// measured is Measure for h. cma: the kernel may reach memory of peers. A message takes a cache line from
// CPU to CPU besides its instructions.
func measured(attr *uct.IfaceAttr, h handover.Costs, cma bool) uct.Measured {
	if !cma {
		h.Kernel = 0
	}
	m := cost.Measured(attr, h, regReach.Send)
	for v := uct.AMShort; v <= uct.AMZcopy; v++ {
		m.Costs[v].Latency = h.Line
	}
	return m
}
