package softhca

import (
	"os"

	hca "github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// NewDevice describes a device, and opens nothing. Each Device.Open creates a separate
// device, with its own GID.
func NewDevice(cfg Config) (*verbs.Device, error) { return hca.NewDevice(cfg.internal()) }

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
