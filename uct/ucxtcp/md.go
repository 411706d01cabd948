package ucxtcp

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// Name is the name of the component, of its MD and of its transport.
const Name = "ucxtcp"

// New makes the component. Ifaces that are opened without a Config use defaults; its Devices also
// decide which devices are offered.
func New(defaults Config) uct.Component { return &component{defaults} }

type component struct{ defaults Config }

func (c *component) Name() string { return Name }

func (c *component) MDs() ([]uct.MDResource, error) {
	return []uct.MDResource{{Name: Name}}, nil
}

// OpenMD opens the one memory domain, "ucxtcp". ErrInvalidParam for another name.
func (c *component) OpenMD(name string) (uct.MD, error) {
	if name != Name {
		return nil, &ucs.OpError{TL: Name, Dev: name, Op: "open md",
			Err: fmt.Errorf("%w: no such memory domain", uct.ErrInvalidParam)}
	}
	return &domain{defaults: c.defaults, attr: uct.MDAttr{Component: Name, Name: Name}}, nil
}

// domain is the memory domain. It registers no memory, because the transport has active messages only.
// Any goroutine may call its methods.
type domain struct {
	attr     uct.MDAttr
	defaults Config
	users    base.Users
}

var _ uct.MD = (*domain)(nil)

// Attr implements uct.MD.
func (md *domain) Attr() *uct.MDAttr { return &md.attr }

// Ext implements uct.MD.
func (md *domain) Ext() *uct.MDExt { return &uct.MDExt{} }

// Resources lists the transport on each device that the configuration selects.
func (md *domain) Resources() (out []uct.Resource, err error) {
	cfg, err := md.defaults.withDefaults()
	if err != nil {
		return nil, md.opError("list network devices", err)
	}
	devs, err := listDevices(cfg.Family)
	if err != nil {
		return nil, md.opError("list network devices", err)
	}
	for _, d := range devs {
		if cfg.deviceListed(d.name) {
			out = append(out, uct.Resource{Transport: Name, Device: d.name, Kind: uct.DeviceNet, Explicit: true})
		}
	}
	return out, nil
}

// OpenIface opens the transport on the device p.Device. p.Config is nil, a Config or a *Config.
// ErrInvalidParam if the transport or device does not exist or a parameter is out of range.
// ErrUnsupported if p has a token, which UCX's protocol does not have.
func (md *domain) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	it, err := md.openIface(p)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return it, nil
}

func (md *domain) openIface(p uct.IfaceParams) (*Iface, error) {
	cfg, err := base.OpenParams(&p, Name, md.defaults)
	if err != nil {
		return nil, err
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if p.Token != "" {
		return nil, fmt.Errorf("%w: a token: UCX's protocol has no authentication", uct.ErrUnsupported)
	}
	dev, err := findDevice(p.Device, cfg.Family)
	if err != nil {
		return nil, err
	}
	return openIface(md, dev, cfg, p)
}

// Close implements uct.MD. ErrBusy while an iface is open. Idempotent.
func (md *domain) Close() error {
	if err := md.users.Close(func() error { return nil }); err != nil {
		return md.opError("close md", err)
	}
	return nil
}

func (md *domain) opError(op string, err error) error {
	return &ucs.OpError{TL: Name, Op: op, Err: err}
}
