package base

import (
	"time"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
)

// Measured are the costs of an iface where processors hand bytes over for h: messages go through
// memory of the transport, other operations read or write memory directly. What is only registered
// the kernel reaches; where it does not, as h.Kernel is 0, the peer helps, which takes byPeer
// before the first byte.
func Measured(attr *uct.IfaceAttr, h handover.Costs, byPeer time.Duration) uct.Measured {
	m := uct.Measured{Costs: attr.Costs, RegReach: uct.Cost{Send: byPeer, Bandwidth: h.Pass}, Assumed: !h.Measured}
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
