package ib

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/uct"
)

// exclusivePort is a place in an MD that some categories of endpoints give to one iface.
type exclusivePort struct {
	transport string
	port      uint8
}

// owners counts the ifaces of an MD by place, so that those of a category with one
// owner are alone. Any goroutine.
type owners struct {
	mu   sync.Mutex
	open map[exclusivePort]occupancy
}

// occupancy is who is at a place: several ifaces, or one that shares it with none.
type occupancy struct {
	ifaces int
	alone  Endpoints // category of the one, if it is one with one owner
}

// join counts an iface in. ErrBusy if it or another one there wants to be alone.
func (o *owners) join(p exclusivePort, e Endpoints) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.open[p]
	switch {
	case at.alone.OneOwner():
		return refusal(p, at.alone)
	case e.OneOwner() && at.ifaces > 0:
		return refusal(p, e)
	case e.OneOwner():
		at.alone = e
	}
	at.ifaces++
	if o.open == nil {
		o.open = map[exclusivePort]occupancy{}
	}
	o.open[p] = at
	return nil
}

// leave counts an iface out.
func (o *owners) leave(p exclusivePort) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.open[p]
	at.ifaces--
	at.alone = EndpointsAuto
	o.open[p] = at
}

// refusal says what to do instead.
func refusal(p exclusivePort, e Endpoints) error {
	advice := "open a memory domain for each thread, which in ucp is a Context for each"
	if e == EndpointsMPIThreads {
		advice = "let the threads take turns with that one, as with ucp.Worker.Share"
	}
	return fmt.Errorf("%w: with endpoints of category %v a memory domain has one iface of %s on a port, and one is open: %s",
		uct.ErrBusy, e, p.transport, advice)
}
