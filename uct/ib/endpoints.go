package ib

import (
	"fmt"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// Endpoints is how the ifaces of a memory domain, and so the workers of a context, share
// the micro-UARs of the device: a category of package endpoint. The others of its
// categories are not for an iface to choose: for MPI-everywhere open a memory domain for
// each thread, for MPI+threads let the threads share a worker.
type Endpoints uint8

// Categories of ifaces. An iface is for one thread, so none of its queues is shared.
const (
	// EndpointsDynamic takes a UAR page for each iface.
	EndpointsDynamic Endpoints = iota
	// Endpoints2xDynamic takes two, of which one is not used.
	Endpoints2xDynamic
	// EndpointsSharedDynamic takes a UAR page for two ifaces.
	EndpointsSharedDynamic
	// EndpointsStatic takes none: queue pairs share what the device gives a context.
	// Transports that write queues themselves refuse those that need a lock.
	EndpointsStatic
)

var endpointCategories = [...]endpoint.Category{
	EndpointsDynamic:       endpoint.Dynamic,
	Endpoints2xDynamic:     endpoint.TwoXDynamic,
	EndpointsSharedDynamic: endpoint.SharedDynamic,
	EndpointsStatic:        endpoint.Static,
}

// String is the name of the category.
func (e Endpoints) String() string {
	if int(e) < len(endpointCategories) {
		return endpointCategories[e].String()
	}
	return fmt.Sprintf("Endpoints(%d)", uint8(e))
}

// MarshalText implements config.Value.
func (e Endpoints) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements config.Value: names in any case.
func (e *Endpoints) UnmarshalText(text []byte) error {
	c, err := endpoint.ParseCategory(string(text))
	if err != nil {
		return fmt.Errorf("%w: no category of endpoints", uct.ErrInvalidParam)
	}
	for i, have := range endpointCategories {
		if have == c {
			*e = Endpoints(i)
			return nil
		}
	}
	return fmt.Errorf("%w: %v is not for an iface to choose", uct.ErrInvalidParam, c)
}

// Grammar implements config.Value.
func (Endpoints) Grammar() string {
	return "Dynamic, 2xDynamic, SharedDynamic or Static"
}

// AllocDomain makes the thread domain that the queues of an iface are in; nil for
// EndpointsStatic. What it makes is closed by undo.
func (md *MD) AllocDomain(e Endpoints, undo *cleanup.Stack) (*verbs.TD, error) {
	if int(e) >= len(endpointCategories) {
		return nil, md.opError("alloc thread domain", fmt.Errorf("%w: %v", uct.ErrInvalidParam, e))
	}
	plan := endpointCategories[e].Plan(1)
	if plan.Domain == 0 {
		return nil, nil
	}
	alloc := func() (*verbs.TD, error) {
		td, err := md.ctx.AllocTD(verbs.TDInitAttr{Sharing: plan.Domain})
		if err != nil {
			return nil, md.opError("alloc thread domain", err)
		}
		undo.Add(td.Close)
		return td, nil
	}
	td, err := alloc()
	if err == nil && plan.Spare {
		_, err = alloc()
	}
	return td, err
}
