package softhca

import (
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// NewDevice describes a device, and opens nothing. Each Device.Open creates a separate
// device, with its own GID.
func NewDevice(cfg Config) (*verbs.Device, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	uars := &uarPool{limit: uint32(cfg.UARPages)}
	return verbs.NewDevice(cfg.Name, func() (verbs.Provider, error) {
		h, err := open(cfg, uars)
		if err != nil {
			return nil, err
		}
		p, err := provider.New(h, cfg.Queues)
		if err != nil {
			_ = h.Close()
			return nil, err
		}
		return p, nil
	}), nil
}
