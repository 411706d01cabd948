package ib

import (
	"time"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/internal/cost"
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

// getLatency is what a get of 8 bytes takes over the software HCA from memory that it maps: 180 to 320 ns
// with a flush. The declared latency is that of an adapter, which sends a packet there and one back.
const getLatency = 200 * time.Nanosecond

// What a message takes over the software HCA besides handing the bytes over. There are more receive
// buffers than fit into a cache, so that a copy from or to them runs at bufferRate, in bytes per second.
// Work request, receive, packet, buffer and completion are messageLines cache lines that change CPUs.
const (
	bufferRate   = 8e9
	messageLines = 5
)

// Measure implements uct.Measurer. Messages go through receive buffers.
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
