package ib

import (
	"errors"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// componentName is the name of the component, also in errors.
const componentName = "ib"

// Transport is a transport over verbs, of package rc, ud, xrc or dv.
type Transport interface {
	// Name returns the name of the transport in uct.Resource.
	Name() string
	// OpenIface opens the transport on a port of md. It calls md.Hold once, and
	// md.Drop when the iface is closed.
	OpenIface(md *MD, port uint8, p uct.IfaceParams) (uct.Iface, error)
}

// Explicit is implemented by a Transport whose resources are uct.Resource.Explicit.
type Explicit interface{ Explicit() bool }

// DeviceFilter is implemented by a Transport that not every device supports.
type DeviceFilter interface {
	// Supports returns the reason why dev does not support the transport, or nil. If it is not nil,
	// the transport is not listed, and opening it returns this error.
	Supports(dev *verbs.Context) error
}

// New makes the component for the devices that devices lists, with transports tls. devices is
// called for each listing and each OpenMD.
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

// OpenMD opens the named device. ErrInvalidParam if there is no such device, or if the
// configuration is invalid.
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
