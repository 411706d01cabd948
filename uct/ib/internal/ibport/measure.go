package ibport

import (
	"time"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/cost"
)

// Measurer returns a measurer of the costs of an iface on the port; nil if hardware moves the bytes
// at the speed of its link.
func (p *Port) Measurer(attr *uct.IfaceAttr) uct.Measurer {
	if !p.Attr.InMemory {
		return nil
	}
	return measurer{attr}
}

type measurer struct{ attr *uct.IfaceAttr }

// farCall is the time of a put by the software HCA to memory that it does not map, with help of the peer and a flush.
const farCall = 2500 * time.Nanosecond

// getLatency is the time of a get of 8 bytes over the software HCA from memory that it maps: 180 to
// 320 ns with a flush. The declared latency is that of an adapter, which sends a packet in each
// direction.
const getLatency = 200 * time.Nanosecond

// Costs of a message over the software HCA, besides passing the bytes. The receive buffers do not
// fit in a cache, so a copy from or to them runs at bufferRate, in bytes per second. The work
// request, receive, packet, buffer and completion are messageLines cache lines that another CPU
// accesses.
const (
	bufferRate   = 8e9
	messageLines = 5
)

// Measure implements uct.Measurer. Messages are copied through receive buffers.
func (m measurer) Measure() uct.Measured { return measured(m.attr, handover.Measure()) }

// measured is Measure for h.
func measured(attr *uct.IfaceAttr, h handover.Costs) uct.Measured {
	out, pass := cost.Measured(attr, h, farCall), float64(h.Pass)
	for v := uct.AMShort; v <= uct.GetZcopy; v++ {
		c := &out.Costs[v]
		switch {
		case !v.Claimed(attr):
		case v <= uct.AMZcopy:
			c.Latency, c.Bandwidth = messageLines*h.Line, uint64(pass*bufferRate/(pass+bufferRate))
		case v >= uct.GetShort:
			c.Latency = getLatency
		}
	}
	return out
}
