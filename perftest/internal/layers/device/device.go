// Package device finds the verbs devices that perftest measures.
package device

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gucx/gucx/internal/mlx5/fakekernel"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/connectx"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/rxe"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Fabrics lists the fabrics of the software HCA.
func Fabrics() []string {
	return []string{string(softhca.FabricShm), string(softhca.FabricLoop)}
}

// FakeEnv is the environment variable that adds a device over package fakekernel, a kernel in software, before the
// other devices. "direct": the driver calls the device, as it calls the software HCA; "silicon": the device polls
// memory, as an adapter does.
const FakeEnv = "PERFTEST_FAKE_MLX5"

// silicon is the value of FakeEnv for a device that polls memory.
const silicon = "silicon"

// PollsMemory reports whether FakeEnv selects a device that polls memory. The goroutines of that device poll and need a
// CPU of their own.
func PollsMemory() bool { return os.Getenv(FakeEnv) == silicon }

// fake returns the device over fakekernel, if FakeEnv is set.
func fake(fabric string, queues mlx5.Config) ([]*verbs.Device, error) {
	mode := os.Getenv(FakeEnv)
	switch mode {
	case "":
		return nil, nil
	case "direct", silicon:
	default:
		return nil, fmt.Errorf("%s=%q: want direct or silicon", FakeEnv, mode)
	}
	k := fakekernel.New(fakekernel.Config{Device: softhca.Config{Fabric: softhca.Fabric(fabric)}, Silicon: mode == silicon})
	return k.Devices(queues)
}

// Adapters returns the devices of the kernel driver mlx5, on a fabric. If FakeEnv is set, the device over fakekernel
// comes first.
func Adapters(fabric string) ([]*verbs.Device, error) {
	queues, err := mlx5.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	list, err := fake(fabric, queues)
	if err != nil {
		return nil, err
	}
	adapters, err := connectx.Devices()
	return append(list, adapters...), err
}

// List returns the software HCA on a fabric ("" selects the default), and the devices of the kernel. If FakeEnv is set,
// the device over fakekernel comes first. The environment variables of libmlx5 configure the queues.
func List(fabric string) ([]*verbs.Device, error) {
	queues, err := mlx5.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.Fabric(fabric), Queues: queues})
	if err != nil {
		return nil, err
	}
	devices, err := fake(fabric, queues)
	if err != nil {
		return nil, err
	}
	devices = append(devices, d)
	for _, list := range []func() ([]*verbs.Device, error){rxe.Devices, connectx.Devices} {
		kernel, err := list()
		if err != nil {
			return nil, err
		}
		devices = append(devices, kernel...)
	}
	return devices, nil
}

// Lister lists the verbs devices of a fabric, as List does.
type Lister func(fabric string) ([]*verbs.Device, error)

// Find is Lister.Find of List.
func Find(fabric, name string) (dev *verbs.Device, port uint8, err error) {
	return Lister(List).Find(fabric, name)
}

// Find returns the device and the port of a name such as "softhca0" or "softhca0:1". An empty name selects the first
// device; the default port is 1.
func (l Lister) Find(fabric, name string) (dev *verbs.Device, port uint8, err error) {
	devices, err := l(fabric)
	if err != nil {
		return nil, 0, err
	}
	want, portText, hasPort := strings.Cut(name, ":")
	port = 1
	if hasPort {
		n, err := strconv.ParseUint(portText, 10, 8)
		if err != nil || n == 0 {
			return nil, 0, fmt.Errorf("device %q: port %q is not a number in 1..255", name, portText)
		}
		port = uint8(n)
	}
	var names []string
	for _, d := range devices {
		if want == "" || d.Name() == want {
			return d, port, nil
		}
		names = append(names, d.Name())
	}
	return nil, 0, fmt.Errorf("no device %q; with fabric %q there is %s", want, fabric, strings.Join(names, ", "))
}
