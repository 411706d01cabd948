package ib

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/uct"
)

// tenant is a place in an MD that some categories of endpoints give to one iface.
type tenant struct {
	transport string
	port      uint8
}

// owners counts the ifaces of an MD by place, so that those of a category with one
// owner are alone. Any goroutine.
type owners struct {
	mu   sync.Mutex
	open map[tenant]occupancy
}

// occupancy is who is at a place: several ifaces, or one that shares it with none.
type occupancy struct {
	ifaces int
	alone  uct.Endpoints // category of the one, if it is one with one owner
}

// join counts an iface in. ErrBusy if it or another one there wants to be alone.
func (o *owners) join(t tenant, e uct.Endpoints) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.open[t]
	switch {
	case at.alone.OneOwner():
		return refusal(t, at.alone)
	case e.OneOwner() && at.ifaces > 0:
		return refusal(t, e)
	case e.OneOwner():
		at.alone = e
	}
	at.ifaces++
	if o.open == nil {
		o.open = map[tenant]occupancy{}
	}
	o.open[t] = at
	return nil
}

// leave counts an iface out.
func (o *owners) leave(t tenant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.open[t]
	at.ifaces--
	at.alone = uct.EndpointsAuto
	o.open[t] = at
}

// refusal says what to do instead.
func refusal(t tenant, e uct.Endpoints) error {
	advice := "open a memory domain for each thread, as ucp does with IB_ENDPOINTS"
	if e == uct.EndpointsMPIThreads {
		advice = "let the threads take turns with that one, as with ucp.Worker.Share"
	}
	return fmt.Errorf("%w: with endpoints of category %v a memory domain has one iface of %s on a port, and one is open: %s",
		uct.ErrBusy, e, t.transport, advice)
}
