package ib

import (
	"fmt"
	"sync"

	"github.com/gucx/gucx/uct"
)

// exclusivePort is a transport on a port of an MD, on which some categories of endpoints permit one
// iface only.
type exclusivePort struct {
	transport string
	port      uint8
}

// owners counts the ifaces of an MD by transport and port, for the categories with one owner. Any
// goroutine may call its methods.
type owners struct {
	mu   sync.Mutex
	open map[exclusivePort]occupancy
}

// occupancy is the use of an exclusivePort: by several ifaces, or by one that permits no others.
type occupancy struct {
	ifaces int
	alone  Endpoints // category of the only iface, if it has one owner
}

// add adds an iface. ErrBusy if its category or that of another iface permits only one.
func (o *owners) add(p exclusivePort, e Endpoints) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.open[p]
	switch {
	case at.alone.oneOwner():
		return busyError(p, at.alone)
	case e.oneOwner() && at.ifaces > 0:
		return busyError(p, e)
	case e.oneOwner():
		at.alone = e
	}
	at.ifaces++
	if o.open == nil {
		o.open = map[exclusivePort]occupancy{}
	}
	o.open[p] = at
	return nil
}

// remove removes an iface.
func (o *owners) remove(p exclusivePort) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.open[p]
	at.ifaces--
	at.alone = EndpointsAuto
	o.open[p] = at
}

// busyError returns ErrBusy with advice.
func busyError(p exclusivePort, e Endpoints) error {
	advice := "open a memory domain for each thread, which in ucp is a Context for each"
	if e == EndpointsMPIThreads {
		advice = "let the threads take turns with that one, as with ucp.Worker.Share"
	}
	return fmt.Errorf("%w: with endpoints of category %v a memory domain has one iface of %s on a port, and one is open: %s",
		uct.ErrBusy, e, p.transport, advice)
}
