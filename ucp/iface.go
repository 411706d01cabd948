package ucp

import (
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// iface is an open transport of a worker.
type iface struct {
	engine.Iface
	w        *Worker
	attr     *uct.IfaceAttr
	domain   *region.Domain
	messages *sends             // nil before the first call of sends
	moves    *transfers         // nil before the first call of transfers
	short    *transfers         // nil before the first call of shortTransfers
	index    int                // index in Worker.ifaces, and in the resources of the worker address
	addr     uct.IfaceAddresser // nil if it has no address
	port     uct.PortSharer     // nil: peers connect to a port of its own
	dials    bool               // uct.IfaceExt.Dials
	writes   bool               // a message may be a system call: the transport has a uct.Pusher
	measure  uct.Measurer       // nil if costs are declared
	measured *uct.Measured      // nil before the first call of costs
}

// costs returns the costs by which messages choose a protocol: measured on this machine if the configuration and the
// transport permit it, otherwise declared. The first call measures.
func (i *iface) costs() *uct.Measured {
	if i.measured == nil {
		i.measured = &uct.Measured{Costs: i.attr.Costs, RegReach: i.domain.Attr.RegReach}
		if i.measure != nil {
			*i.measured = i.measure.Measure()
		}
	}
	return i.measured
}

// costsFrom returns the source of costs, for Explain.
func (i *iface) costsFrom() string {
	switch {
	case i.measure == nil:
		return "declared"
	case i.costs().Assumed:
		return "assumed, as they could not be measured"
	}
	return "measured"
}

// packedMsg packs a message into a transport buffer.
type packedMsg struct{ b []byte }

// Pack copies the message.
func (p *packedMsg) Pack(dst []byte) int { return copy(dst, p.b) }

// transport returns the transport of the lane that operations of a role use, or would use; nil if there is none.
func (e *EP) transport(role wireup.Role) *iface {
	if x := e.lane(role); x != nil {
		return x.Iface
	}
	if e.reachable(role) {
		return e.w.ifaces[e.peer.Best[role].Local]
	}
	return nil
}
