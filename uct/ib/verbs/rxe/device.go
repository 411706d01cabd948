package rxe

import (
	"fmt"

	"github.com/gucx/gucx/internal/uverbs"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// driverABI is the version of the driver's ABI: RXE_UVERBS_ABI_VERSION.
const driverABI = 2

// Devices returns the rxe devices of the kernel, sorted by name. The list is empty if the kernel has no RDMA.
func Devices() ([]*verbs.Device, error) { return devicesOf(uverbs.System()) }

// devicesOf returns the rxe devices of k. Tests pass another kernel than the system's.
func devicesOf(k uverbs.Kernel) ([]*verbs.Device, error) {
	list, err := uverbs.List(k)
	if err != nil {
		return nil, err
	}
	var devices []*verbs.Device
	for _, info := range list {
		if info.Driver == uverbs.DriverRXE {
			devices = append(devices, newDevice(k, info))
		}
	}
	return devices, nil
}

// newDevice describes one device. Only Device.Open opens the device file, and each Open opens it again.
func newDevice(k uverbs.Kernel, info uverbs.Info) *verbs.Device {
	return verbs.NewDevice(info.Name, func() (verbs.Provider, error) {
		p, err := open(k, info)
		if err != nil {
			return nil, err
		}
		return p, nil
	})
}

func open(k uverbs.Kernel, info uverbs.Info) (*provider, error) {
	if info.ABI != driverABI {
		return nil, fmt.Errorf("%s: version %d of the ABI of rxe, want %d: %w", info.Name, info.ABI, driverABI, ucs.ErrUnsupported)
	}
	ctx, err := uverbs.Open(k, info, uverbs.DriverRXE)
	if err != nil {
		return nil, err
	}
	p := &provider{ctx: ctx}
	p.objects.init()
	if p.attr, err = queryDevice(ctx); err != nil {
		_ = ctx.Close()
		return nil, err
	}
	return p, nil
}

// maxInline is RXE_MAX_INLINE_DATA, in bytes: the space of the maximum number of SGEs in a work request.
const maxInline = 512

// queryDevice returns the attributes of the device with MaxMsgSize of port 1 and MaxInline, which the kernel does not
// report.
func queryDevice(ctx *uverbs.Context) (verbs.DeviceAttr, error) {
	attr, err := ctx.QueryDevice()
	if err != nil {
		return attr, err
	}
	_, maxMessage, err := ctx.QueryPort(1)
	if err != nil {
		return attr, err
	}
	attr.MaxMsgSize, attr.MaxInline = maxMessage, maxInline
	return attr, nil
}
