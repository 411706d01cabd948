package ib

import (
	"fmt"

	"github.com/gucx/gucx/uct"
)

// PathConfig says how packets leave a port, and how ifaces share the device. The zero value is
// ready to use.
type PathConfig struct {
	GIDIndex     GIDIndex `env:"GID_INDEX" doc:"Entry of the GID table of the port to use as source. auto: the first RoCE v2 entry with an IPv4 address, else the first of RoCE v2, else the first of RoCE v1 with an IPv4 address, else the first of RoCE v1."`
	SL           uint8    `env:"SL" doc:"InfiniBand service level, 0 to 15."`
	TrafficClass uint8    `env:"TRAFFIC_CLASS" doc:"Traffic class of the global routing header, 0 to 255."`
	// Endpoints says how ifaces share the device. EndpointsAuto is Dynamic, or Static for ifaces
	// for which the context has no thread domain left.
	Endpoints Endpoints `env:"ENDPOINTS" doc:"How threads share the device, unless IB_ENDPOINTS is set. Dynamic: a UAR page per interface. 2xDynamic: two sets of queues, of which every other one is used. SharedDynamic: a UAR page for two interfaces. Static: the UAR pages of the context with locks. MPI-everywhere, MPI+threads: a memory domain has one interface of the transport; with MPI+threads the threads take turns. auto: Dynamic while the device has pages, then Static."`
}

// Validate checks the ranges.
func (c *PathConfig) Validate() error {
	if c.SL > 15 {
		return fmt.Errorf("%w: SL %d not in [0, 15]", uct.ErrInvalidParam, c.SL)
	}
	if !c.Endpoints.Valid() {
		return fmt.Errorf("%w: %v", uct.ErrInvalidParam, c.Endpoints)
	}
	return nil
}

// With returns c with endpoints e, unless e is EndpointsAuto.
func (c PathConfig) With(e Endpoints) PathConfig {
	if e != EndpointsAuto {
		c.Endpoints = e
	}
	return c
}
