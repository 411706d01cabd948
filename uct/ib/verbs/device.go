package verbs

import (
	"sync"

	"github.com/gucx/gucx/ucs"
)

// Device is one HCA that can be opened. The packages of providers return devices: softhca.Devices,
// connectx.Devices and rxe.Devices.
type Device struct {
	name string
	open func() (Provider, error)
}

// NewDevice returns a device with a name. open opens it; each call makes a provider.
func NewDevice(name string, open func() (Provider, error)) *Device {
	return &Device{name: name, open: open}
}

// Name returns the name of the device: "softhca0", "mlx5_0".
func (d *Device) Name() string { return d.name }

// Open opens the device. It blocks while the device is set up.
func (d *Device) Open() (*Context, error) {
	p, err := d.open()
	if err != nil {
		return nil, &ucs.OpError{Dev: d.name, Op: "open device", Err: err}
	}
	return &Context{dev: d, p: p, attr: p.QueryDevice()}, nil
}

// Context is an open device. Its methods may be called by any goroutine.
type Context struct {
	dev  *Device
	p    Provider
	attr DeviceAttr
	life lifetime

	linksMu sync.Mutex
	links   map[uint8]portLink
}

// portLink are the attributes of a port that do not change while the device is open.
type portLink struct {
	ethernet bool
	gids     int // length of the GID table
}

// linkOf returns the link of a port. It queries the device once, as that is a system call on some.
func (c *Context) linkOf(port uint8) (portLink, error) {
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	if l, ok := c.links[port]; ok {
		return l, nil
	}
	attr, err := c.p.QueryPort(port)
	if err != nil {
		return portLink{}, err
	}
	if c.links == nil {
		c.links = map[uint8]portLink{}
	}
	l := portLink{ethernet: attr.Ethernet, gids: attr.GIDs}
	c.links[port] = l
	return l, nil
}

// Device returns the device of the context.
func (c *Context) Device() *Device { return c.dev }

// QueryDevice returns the limits of the device.
func (c *Context) QueryDevice() DeviceAttr { return c.attr }

// QueryPort returns the attributes of a port, counted from 1. ErrInvalidParam if there is no such port.
func (c *Context) QueryPort(port uint8) (PortAttr, error) { return c.p.QueryPort(port) }

// QueryGID returns an entry of the port's GID table. ErrInvalidParam beyond it.
func (c *Context) QueryGID(port uint8, index int) (GID, error) { return c.p.QueryGID(port, index) }

// GIDs returns the entries of a port's GID table that are in use, by index. A device that does not list them
// has those of QueryGID, with the type of its link: RoCE v2 on Ethernet.
func (c *Context) GIDs(port uint8) ([]GIDEntry, error) {
	if l, ok := c.p.(GIDLister); ok {
		return l.GIDs(port)
	}
	return GIDsByIndex(c.p, port)
}

// GIDsByIndex is Context.GIDs of a provider that does not list them.
func GIDsByIndex(p Provider, port uint8) ([]GIDEntry, error) {
	attr, err := p.QueryPort(port)
	if err != nil {
		return nil, err
	}
	typ := GIDInfiniBand
	if attr.Ethernet {
		typ = GIDRoCEv2
	}
	var list []GIDEntry
	for i := range min(attr.GIDs, 1<<8) {
		gid, err := p.QueryGID(port, i)
		if err != nil {
			return nil, err
		}
		if !gid.IsZero() {
			list = append(list, GIDEntry{GID: gid, Index: uint8(i), Type: typ})
		}
	}
	return list, nil
}

// NextAsyncEvent waits for the next asynchronous event; ErrClosed after Close.
func (c *Context) NextAsyncEvent() (AsyncEvent, error) { return c.p.NextAsyncEvent() }

// AllocBuffer allocates page-aligned zeroed memory to register; see
// [Provider]. The caller must close it after its MRs. ErrNoMemory if the
// device has no memory left.
func (c *Context) AllocBuffer(n int) (Buffer, error) {
	if n < 1 {
		return nil, invalid("allocate buffer", "%d bytes", n)
	}
	return c.p.AllocBuffer(n)
}

// Provider returns the implementation of the context, for packages that drive its
// queues directly.
func (c *Context) Provider() Provider { return c.p }

// Close closes the device; a goroutine in NextAsyncEvent returns. ErrBusy while
// objects of the context are open. After an error of the device the context can only be
// closed again. Idempotent.
func (c *Context) Close() error { return c.life.close("close device "+c.dev.name, c.p.Close) }
