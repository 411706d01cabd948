package sm

import (
	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// Measure implements uct.Measurer: how fast processors of this machine hand bytes over.
func (it *Iface) Measure() uct.Measured {
	return measured(&it.attr, handover.Measure(), it.cfg.CMA != config.No)
}

// measured are the costs of an iface where processors hand bytes over for h. cma: the kernel may
// reach memory of peers. Where it does not the peer helps: it copies into the segments, or out
// of them.
func measured(attr *uct.IfaceAttr, h handover.Costs, cma bool) uct.Measured {
	m := uct.Measured{Costs: attr.Costs, RegReach: regReach, Assumed: !h.Measured}
	for v := range uct.Variant(uct.NumVariants) {
		c := &m.Costs[v]
		switch {
		case c.Bandwidth == 0: // there is none, or the length does not count
		case v <= uct.AMZcopy:
			c.Bandwidth, c.SharedBandwidth = h.Pass, 0
		default:
			c.Bandwidth, c.SharedBandwidth = h.Read, 0
		}
	}
	if cma && h.Kernel > 0 {
		m.RegReach = uct.Cost{Send: h.Call, Bandwidth: h.Kernel}
	} else {
		m.RegReach.Bandwidth = h.Pass
	}
	return m
}
