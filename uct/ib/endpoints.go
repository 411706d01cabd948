package ib

import (
	"fmt"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Endpoints is how the threads of a process share a device: its context, its queues and
// the registers in which doorbells ring. The categories are those of package
// verbs/endpoint; design note 0003 says what each means for an iface. The value
// is text in a configuration.
type Endpoints uint8

// Categories. With the first and the last, an MD has one owner: it opens one iface of
// each transport on each port.
const (
	// EndpointsAuto leaves the choice to the configuration of the transport.
	EndpointsAuto Endpoints = iota
	// EndpointsMPIEverywhere shares nothing: an MD for each thread.
	EndpointsMPIEverywhere
	// Endpoints2xDynamic is EndpointsDynamic with everything twice, of which one is
	// not used.
	Endpoints2xDynamic
	// EndpointsDynamic is a page of registers for each iface.
	EndpointsDynamic
	// EndpointsSharedDynamic is a page of registers for two ifaces.
	EndpointsSharedDynamic
	// EndpointsStatic shares the registers that the device gives a context, under
	// locks.
	EndpointsStatic
	// EndpointsMPIThreads shares everything: all threads take turns with one iface.
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

// OneOwner reports whether an MD admits one iface of each transport on a port.
func (e Endpoints) OneOwner() bool { return e == EndpointsMPIEverywhere || e == EndpointsMPIThreads }

// String is the name of the category.
func (e Endpoints) String() string {
	if e.Valid() {
		return endpointsNames[e]
	}
	return fmt.Sprintf("Endpoints(%d)", uint8(e))
}

// MarshalText implements config.Value.
func (e Endpoints) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements config.Value: names in any case. ErrInvalidParam.
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
