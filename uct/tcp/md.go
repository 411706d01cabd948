package tcp

import (
	"time"

	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/gucx/gucx/internal/handle"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/base"
)

// Name is the name of the component, of its MD and of its transport.
const Name = "tcp"

// New makes the component. Ifaces that are opened without a Config use defaults; its Devices also
// decide which devices are offered.
func New(defaults Config) uct.Component { return &component{defaults} }

type component struct{ defaults Config }

func (c *component) Name() string { return Name }

func (c *component) MDs() ([]uct.MDResource, error) {
	return []uct.MDResource{{Name: Name}}, nil
}

// OpenMD opens the one memory domain, "tcp". ErrInvalidParam for another name.
func (c *component) OpenMD(name string) (uct.MD, error) {
	if name != Name {
		return nil, &ucs.OpError{TL: Name, Dev: name, Op: "open md",
			Err: fmt.Errorf("%w: no such memory domain", uct.ErrInvalidParam)}
	}
	md := &domain{defaults: c.defaults}
	md.attr = uct.MDAttr{Component: Name, Name: Name, RKeyLen: keyLen, MaxReg: 1 << 62,
		RegCost: uct.Cost{Send: 6 * time.Microsecond}} // independent of the length; experiment 0087 in docs/perf
	return md, nil
}

// domain is the memory domain: a table of the memory that this process registered, and the keys of
// peers. Any goroutine may call its methods.
type domain struct {
	attr     uct.MDAttr
	defaults Config
	mems     memTable
	keys     handle.Shared[wireKey] // of peers, by uct.RKey

	users base.Users
}

var _ uct.MD = (*domain)(nil)

// Attr implements uct.MD.
func (md *domain) Attr() *uct.MDAttr { return &md.attr }

// Ext implements uct.MD.
func (md *domain) Ext() *uct.MDExt {
	ext := &uct.MDExt{Reg: md, Alloc: md, Keys: md}
	if md.defaults.demandsTLS() {
		ext.TLS = md
	}
	if len(md.defaults.Devices) == 0 {
		ext.Net = md
	}
	return ext
}

// OpenTLS implements uct.TLSOpener.
func (md *domain) OpenTLS(protocol string) (uct.TLSConfigs, error) {
	p, err := md.defaults.policyFor(protocol)
	if err != nil {
		return nil, md.opError("open TLS", err)
	}
	return p, nil
}

// Resources lists the transport on each device that the configuration selects. ErrInvalidParam if
// the configuration names a device that does not exist, is down or has no address.
func (md *domain) Resources() ([]uct.Resource, error) {
	devs, err := listDevices()
	if err == nil {
		devs, err = md.defaults.selectDevices(devs)
	}
	if err != nil {
		return nil, md.opError("list network devices", err)
	}
	return resources(devs), nil
}

// ResourcesAt implements uct.NetOpener. A device with only link-local addresses is not listed.
func (md *domain) ResourcesAt(local netip.Addr) ([]uct.Resource, error) {
	devs, err := devicesAt(local)
	if err != nil {
		return nil, md.opError("list network devices", err)
	}
	return resources(devs), nil
}

func resources(devs []device) (out []uct.Resource) {
	for i := range devs {
		out = append(out, uct.Resource{Transport: Name, Device: devs[i].name, Kind: uct.DeviceNet})
	}
	return out
}

// UnpackRKey implements uct.RKeyUnpacker.
func (md *domain) UnpackRKey(b []byte) (uct.RKey, error) {
	k, err := parseKey(b)
	if err != nil {
		return 0, md.opError("unpack rkey", err)
	}
	return uct.RKey(md.keys.Add(&k)), nil
}

// ReleaseRKey implements uct.RKeyUnpacker.
func (md *domain) ReleaseRKey(key uct.RKey) { md.keys.Remove(uint64(key)) }

// OpenIface opens the transport on the device p.Device. p.Config is nil, a Config or a *Config.
// ErrInvalidParam if the transport or device does not exist or a parameter is out of range.
// Resources need not list the device; it must be up.
func (md *domain) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	it, err := md.openIface(p)
	if err != nil {
		return nil, &ucs.OpError{TL: Name, Dev: p.Device, Op: "open iface", Err: err}
	}
	return it, nil
}

func (md *domain) openIface(p uct.IfaceParams) (*iface, error) {
	cfg, err := base.OpenParams(&p, Name, md.defaults)
	if err != nil {
		return nil, err
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	dev, err := findDevice(p.Device)
	if err != nil {
		return nil, err
	}
	return openIface(md, dev, cfg, p)
}

// Close implements uct.MD. ErrBusy while an iface or a Mem is open. Idempotent.
func (md *domain) Close() error {
	if err := md.users.Close(func() error { return nil }); err != nil {
		return md.opError("close md", err)
	}
	return nil
}

func (md *domain) opError(op string, err error) error {
	return &ucs.OpError{TL: Name, Op: op, Err: err}
}

// randomWord returns an unpredictable random number that is not 0.
func randomWord() uint64 {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never returns an error: it terminates the process instead
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}
