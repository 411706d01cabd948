package ib

import (
	"fmt"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Config is what all transports over InfiniBand devices have in common. The zero value
// is ready to use.
type Config struct {
	// Endpoints is how the threads of the process share a device; EndpointsAuto leaves
	// that to the configuration of each transport, [PathConfig].
	Endpoints Endpoints `env:"IB_ENDPOINTS" doc:"How threads share an InfiniBand device, for all transports over it. MPI-everywhere: a device context per thread. 2xDynamic, Dynamic: one context with a register page (UAR) per thread. SharedDynamic: one page for two threads. Static: shared pages with locks. MPI+threads: all threads share one interface. auto: as RC_IB_ENDPOINTS and so on."`
	// PollIdleTx gives each interface a second completion queue, which stays empty and which each
	// Progress polls, as UCX 1.0 polled the idle queue of sends of an interface; for measurements.
	PollIdleTx bool `env:"POLL_IDLE_TX" default:"n" doc:"Poll an idle completion queue of sends at each progress (only for measurements)."`
}

// Validate checks the ranges. ErrInvalidParam.
func (c *Config) Validate() error {
	if !c.Endpoints.Valid() {
		return fmt.Errorf("%w: %v", uct.ErrInvalidParam, c.Endpoints)
	}
	return nil
}

// New is the function of that name with a configuration. What is wrong with c, OpenMD
// tells.
func (c Config) New(devices func() ([]*verbs.Device, error), tls ...Transport) uct.Component {
	return &component{cfg: c, devices: devices, tls: tls}
}
