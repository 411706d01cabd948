package connectx

import (
	"os"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs/uverbs"
)

// driverABI is the version of the driver's ABI: MLX5_IB_UVERBS_ABI_VERSION.
const driverABI = 1

// Devices lists the devices of the driver mlx5, by name; none where the kernel has no RDMA. The environment
// variables of libmlx5 tune their queues.
func Devices() ([]*verbs.Device, error) {
	queues, err := mlx5.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return DevicesOf(uverbs.System(), queues)
}

// DevicesOf is Devices of another kernel, for tests.
func DevicesOf(k uverbs.Kernel, queues mlx5.Config) ([]*verbs.Device, error) {
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

// newDevice describes one device. Nothing is opened before Device.Open, and each Open opens the device file anew.
// The UAR policy of queues is not used: the driver allocates a UAR page when a queue needs it (UARLazy).
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
		p, err := mlx5.NewProvider(hw, cfg)
		if err != nil {
			_ = h.Close()
			return nil, err
		}
		return p, nil
	})
}
