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
	messages *sends             // nil until they are chosen
	moves    *transfers         // nil until a lane is bound
	short    *transfers         // nil until one is bound that shares long puts and gets
	index    int                // in Worker.ifaces, and of the resource in the worker address
	addr     uct.IfaceAddresser // nil if it has no address
	port     uct.PortSharer     // nil: peers connect to a port of its own
	measure  uct.Measurer       // nil if nothing is to be measured
	measured *uct.Measured      // nil until it is
}

// costs are those that messages choose by: as they are on this machine, which the first call
// finds out, or as declared.
func (i *iface) costs() *uct.Measured {
	if i.measured == nil {
		i.measured = &uct.Measured{Costs: i.attr.Costs, RegReach: i.domain.Attr.RegReach}
		if i.measure != nil {
			*i.measured = i.measure.Measure()
		}
	}
	return i.measured
}

// costsFrom says where costs are from.
func (i *iface) costsFrom() string {
	switch {
	case i.measure == nil:
		return "declared"
	case i.costs().Assumed:
		return "assumed, as they could not be measured"
	}
	return "measured"
}

// packedMsg is a message on its way into a transport buffer.
type packedMsg struct{ b []byte }

// Pack copies the message.
func (p *packedMsg) Pack(dst []byte) int { return copy(dst, p.b) }

// transport is that of the lane which operations of a role take, or would take; nil if
// there is none.
func (e *EP) transport(role wireup.Role) *iface {
	if x := e.lane(role); x != nil {
		return x.Iface
	}
	if e.reachable(role) {
		return e.w.ifaces[e.peer.Best[role].Local]
	}
	return nil
}
