package ib

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Config contains the settings that all transports over InfiniBand devices share. The zero value is
// ready to use.
type Config struct {
	// Endpoints says how the threads of the process share a device. EndpointsAuto uses the
	// configuration of each transport, [PathConfig].
	Endpoints Endpoints `env:"IB_ENDPOINTS" doc:"How threads share an InfiniBand device, for all transports over it. MPI-everywhere: a device context per thread. 2xDynamic, Dynamic: one context with a register page (UAR) per thread. SharedDynamic: one page for two threads. Static: shared pages with locks. MPI+threads: all threads share one interface. auto: as RC_IB_ENDPOINTS and so on."`
	// PollIdleTx gives each interface a second completion queue without completions, which each
	// Progress polls, as UCX 1.0 polled the idle send queue of an interface. It is for
	// measurements.
	PollIdleTx bool `env:"POLL_IDLE_TX" default:"n" doc:"Poll an idle completion queue of sends at each progress (only for measurements)."`
}

// Validate checks the ranges. ErrInvalidParam.
func (c *Config) Validate() error {
	if !c.Endpoints.Valid() {
		return fmt.Errorf("%w: %v", uct.ErrInvalidParam, c.Endpoints)
	}
	return nil
}

// New is the function New with a configuration. OpenMD returns the error if c is invalid.
func (c Config) New(devices func() ([]*verbs.Device, error), tls ...Transport) uct.Component {
	return &component{cfg: c, devices: devices, tls: tls}
}
