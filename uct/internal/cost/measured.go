// Package cost derives the costs of the operations of a transport from the measured costs of moving
// bytes between processes of this machine.
package cost

import (
	"time"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
)

// linesOfCall is the number of cache lines of the other CPU that a transfer by the kernel accesses
// besides the data: the descriptors of the peer's memory and of its pages. handover.Measure has
// them in the caches of its own CPU.
const linesOfCall = 2

// Measured returns the costs of an iface on a machine with the costs h. Messages are copied through
// memory of the transport; other operations access allocated memory directly. The kernel accesses
// registered memory. If it does not (h.Kernel is 0), the peer executes the operation, which takes
// byPeer before the first byte.
func Measured(attr *uct.IfaceAttr, h handover.Costs, byPeer time.Duration) uct.Measured {
	m := uct.Measured{Costs: attr.Costs, RegReach: uct.Cost{Send: byPeer, Bandwidth: h.Pass}, Assumed: !h.Measured}
	if h.Kernel > 0 {
		m.RegReach = uct.Cost{Send: h.Call + linesOfCall*h.Line, Bandwidth: h.Kernel}
	}
	for v := range uct.Variant(uct.NumVariants) {
		c := &m.Costs[v]
		switch {
		case c.Bandwidth == 0: // the operation does not exist, or its cost does not depend on the length
		case v <= uct.AMZcopy || v == uct.QueueZcopy:
			c.Bandwidth, c.SharedBandwidth = h.Pass, 0
		default:
			c.Bandwidth, c.SharedBandwidth = h.Read, 0
		}
	}
	return m
}
