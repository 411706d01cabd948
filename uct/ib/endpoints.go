package ib

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Endpoints says how the threads of a process share a device: its context, its queues and its
// doorbell registers. The categories are those of package verbs/endpoint; design note 0003
// describes what each means for an iface. In a configuration the value is text.
type Endpoints uint8

// Categories. With EndpointsMPIEverywhere and EndpointsMPIThreads, an MD can open only one iface of
// each transport on each port.
const (
	// EndpointsAuto uses the configuration of the transport.
	EndpointsAuto Endpoints = iota
	// EndpointsMPIEverywhere shares nothing: each thread has an MD.
	EndpointsMPIEverywhere
	// Endpoints2xDynamic is EndpointsDynamic with twice the resources, of which half are not used.
	Endpoints2xDynamic
	// EndpointsDynamic gives each iface a page of registers.
	EndpointsDynamic
	// EndpointsSharedDynamic gives each two ifaces a page of registers.
	EndpointsSharedDynamic
	// EndpointsStatic shares the registers of the context, with locks.
	EndpointsStatic
	// EndpointsMPIThreads shares everything: all threads use one iface, one at a time.
	EndpointsMPIThreads
)

var endpointsNames = [...]string{
	EndpointsAuto:          "auto",
	EndpointsMPIEverywhere: "MPI-everywhere",
	Endpoints2xDynamic:     "2xDynamic",
	EndpointsDynamic:       "Dynamic",
	EndpointsSharedDynamic: "SharedDynamic",
	EndpointsStatic:        "Static",
	EndpointsMPIThreads:    "MPI+threads",
}

// Valid reports whether e is one of the constants.
func (e Endpoints) Valid() bool { return int(e) < len(endpointsNames) }

// oneOwner reports whether an MD can have only one iface of each transport on a port.
func (e Endpoints) oneOwner() bool { return e == EndpointsMPIEverywhere || e == EndpointsMPIThreads }

// String returns the name of the category.
func (e Endpoints) String() string {
	if e.Valid() {
		return endpointsNames[e]
	}
	return fmt.Sprintf("Endpoints(%d)", uint8(e))
}

// MarshalText implements config.Value.
func (e Endpoints) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements config.Value. It ignores the case of names. ErrInvalidParam.
func (e *Endpoints) UnmarshalText(text []byte) error {
	for i, name := range endpointsNames {
		if strings.EqualFold(name, string(text)) {
			*e = Endpoints(i)
			return nil
		}
	}
	return fmt.Errorf("%w: no category of endpoints", ucs.ErrInvalidParam)
}

// Grammar implements config.Value.
func (Endpoints) Grammar() string { return strings.Join(endpointsNames[:], ", ") }
