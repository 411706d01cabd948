package sm

import (
	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/cost"
)

// Measure implements uct.Measurer, from the cost of passing bytes between CPUs of this machine.
func (it *iface) Measure() uct.Measured {
	return measured(&it.attr, handover.Measure(), it.cfg.CMA != config.No)
}

// measured is Measure for h. cma means that the kernel may access memory of peers. The latency of a message is that of
// passing one cache line between CPUs.
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
