package ib

import (
	"errors"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// componentName is what Component.Name returns and errors name.
const componentName = "ib"

// Transport is one transport over verbs: packages rc, ud and dv.
type Transport interface {
	// Name is the transport's name in uct.Resource.
	Name() string
	// OpenIface opens the transport on a port of md. It calls md.Hold once, and
	// md.Drop when the iface is closed.
	OpenIface(md *MD, port uint8, p uct.IfaceParams) (uct.Iface, error)
}

// Explicit is implemented by a Transport whose resources are uct.Resource.Explicit.
type Explicit interface{ Explicit() bool }

// DeviceFilter is implemented by a Transport that not every device can carry.
type DeviceFilter interface {
	// Supports returns why dev cannot: the transport is not listed there, and opening
	// it gives the same reason.
	Supports(dev *verbs.Context) error
}

// New makes the component over the devices that devices lists, with transports
// tls. devices is called for each listing and each OpenMD.
func New(devices func() ([]*verbs.Device, error), tls ...Transport) uct.Component {
	return Config{}.New(devices, tls...)
}

type component struct {
	cfg     Config
	devices func() ([]*verbs.Device, error)
	tls     []Transport
}

func (c *component) Name() string { return componentName }

func (c *component) MDs() ([]uct.MDResource, error) {
	devs, err := c.devices()
	if err != nil {
		return nil, &ucs.OpError{TL: componentName, Op: "list devices", Err: err}
	}
	out := make([]uct.MDResource, len(devs))
	for i, d := range devs {
		out[i].Name = d.Name()
	}
	return out, nil
}

// OpenMD opens the named device. ErrInvalidParam if there is none of that name, or for
// what is wrong with the configuration.
func (c *component) OpenMD(name string) (uct.MD, error) {
	if err := c.cfg.Validate(); err != nil {
		return nil, &ucs.OpError{TL: componentName, Dev: name, Op: "open md", Err: err}
	}
	devs, err := c.devices()
	if err != nil {
		return nil, &ucs.OpError{TL: componentName, Op: "list devices", Err: err}
	}
	for _, d := range devs {
		if d.Name() == name {
			return openMD(d, c.cfg, c.tls)
		}
	}
	return nil, &ucs.OpError{TL: componentName, Dev: name, Op: "open md",
		Err: errors.Join(uct.ErrInvalidParam, errors.New("no such device"))}
}
