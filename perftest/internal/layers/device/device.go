// Package device finds the verbs devices that perftest measures.
package device

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/rxe"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Fabrics lists the fabrics of the software HCA.
func Fabrics() []string {
	return []string{string(softhca.FabricShm), string(softhca.FabricLoop)}
}

// List returns the software HCA on a fabric, "" meaning the default one, and the devices of the kernel. The
// environment variables of libmlx5 tune the queues of the software HCA.
func List(fabric string) ([]*verbs.Device, error) {
	queues, err := mlx5.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	d, err := softhca.NewDevice(softhca.Config{Fabric: softhca.Fabric(fabric), Queues: queues})
	if err != nil {
		return nil, err
	}
	kernel, err := rxe.Devices()
	return append([]*verbs.Device{d}, kernel...), err
}

// Find returns the device with that name and the port that it names: "softhca0"
// or "softhca0:1". An empty name means the first device; without port it is 1.
func Find(fabric, name string) (dev *verbs.Device, port uint8, err error) {
	devices, err := List(fabric)
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
