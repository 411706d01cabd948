package softhca

import (
	"os"

	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
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

// Devices lists the default devices of a program: one on the shm fabric, with queues
// configured by the environment variables of libmlx5.
func Devices() ([]*verbs.Device, error) {
	queues, err := mlx5.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	d, err := NewDevice(Config{Queues: queues})
	if err != nil {
		return nil, err
	}
	return []*verbs.Device{d}, nil
}
