package adapter

import (
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// driverABI is the version of the driver's ABI: MLX5_IB_UVERBS_ABI_VERSION.
const driverABI = 1

// Devices returns the devices of a kernel with driver mlx5, sorted by name.
func Devices(k uverbs.Kernel, queues mlx5.Config) ([]*verbs.Device, error) {
	list, err := uverbs.List(k)
	if err != nil {
		return nil, err
	}
	var devices []*verbs.Device
	for _, info := range list {
		if info.Driver == uverbs.DriverMLX5 {
			devices = append(devices, newDevice(k, info, queues))
		}
	}
	return devices, nil
}

// newDevice describes one device. Only Device.Open opens the device file, and each Open opens it again. newDevice ignores
// the UAR policy of queues: the driver allocates a UAR page when a queue needs it (UARLazy).
func newDevice(k uverbs.Kernel, info uverbs.Info, queues mlx5.Config) *verbs.Device {
	queues.UARPolicy = mlx5.UARLazy
	return verbs.NewDevice(info.Name, func() (verbs.Provider, error) {
		cfg, err := queues.WithDefaults()
		if err != nil {
			return nil, err
		}
		h, err := open(k, info, cfg)
		if err != nil {
			return nil, err
		}
		cfg.ShutUpBF = cfg.ShutUpBF || !h.hasBlueFlame()
		var hw prm.Hardware = h
		if h.software != nil {
			hw = softHardware{hardware: h, Pollable: h.software}
		}
		p, err := provider.New(hw, cfg)
		if err != nil {
			_ = h.Close()
			return nil, err
		}
		return p, nil
	})
}
