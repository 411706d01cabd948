// Package cost derives what the operations of a transport cost from what this machine takes to move bytes between
// processes.
package cost

import (
	"time"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
)

// linesOfCall is how many cache lines of the other CPU a transfer by the kernel touches besides the data:
// those of the descriptor of the peer's memory and of its pages, which handover.Measure has in the caches
// of its own CPU.
const linesOfCall = 2

// Measured are the costs of an iface where processors hand bytes over for h: messages go through
// memory of the transport, other operations read or write memory directly. What is only registered
// the kernel reaches; where it does not, as h.Kernel is 0, the peer helps, which takes byPeer
// before the first byte.
func Measured(attr *uct.IfaceAttr, h handover.Costs, byPeer time.Duration) uct.Measured {
	m := uct.Measured{Costs: attr.Costs, RegReach: uct.Cost{Send: byPeer, Bandwidth: h.Pass}, Assumed: !h.Measured}
	if h.Kernel > 0 {
		m.RegReach = uct.Cost{Send: h.Call + linesOfCall*h.Line, Bandwidth: h.Kernel}
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
