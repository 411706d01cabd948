package device

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// downComponent has a device whose port is down, and one that the user has no permission to open.
type downComponent struct{ uct.Component }

func (downComponent) Name() string { return "down" }

func (downComponent) MDs() ([]uct.MDResource, error) {
	return []uct.MDResource{{Name: "dev0"}, {Name: "locked0"}}, nil
}

func (downComponent) OpenMD(name string) (uct.MD, error) {
	if name == "locked0" {
		return nil, fmt.Errorf("%s: permission denied", name)
	}
	return downMD{}, nil
}

type downMD struct{ uct.MD }

func (downMD) Close() error                       { return nil }
func (downMD) Resources() ([]uct.Resource, error) { return nil, nil }
func (downMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	return nil, fmt.Errorf("%s %s: %w: port is down", p.Transport, p.Device, ucs.ErrUnreachable)
}

// TestFindTransport_Reason: a device that exists is not reported as missing.
func TestFindTransport_Reason(t *testing.T) {
	for device, want := range map[string]string{
		"dev0":      `no transport "rc" on device "dev0": rc dev0:1: ` + ucs.ErrUnreachable.Error() + ": port is down",
		"dev0:2":    `no transport "rc" on device "dev0:2": rc dev0:2: ` + ucs.ErrUnreachable.Error() + ": port is down",
		"locked0:1": `no transport "rc" on device "locked0:1": locked0: permission denied`,
		"dev1":      `no transport "rc"`,
	} {
		_, err := FindTransport([]uct.Component{downComponent{}}, "rc", device)
		assert.ErrorContains(t, err, want)
	}
}
