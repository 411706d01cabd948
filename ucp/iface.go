package ucp

import (
	"github.com/gucx/gucx/ucp/internal/engine"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/uct"
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
}
