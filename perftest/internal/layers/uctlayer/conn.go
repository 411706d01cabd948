// Package uctlayer measures a transport through the contract of uct: short operations up to the limit of the transport,
// and zero-copy from registered memory for larger sizes, as the verbs layer does.
package uctlayer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct"
)

// Name of the layer.
const Name = "uct"

// Layer opens connections over uct.
type Layer struct {
	components device.Source
	mds        layer.Share[uct.MD]
}

// New returns the layer over the transports of components.
func New(components device.Source) *Layer { return &Layer{components: components} }

// Conn is one side of a connection: an iface with one EP and two buffers. The methods that are not in layer.Conn are
// for programs that call uct themselves.
type Conn struct {
	cfg    layer.Config
	res    uct.Resource
	md     uct.MD
	iface  uct.Iface
	ep     uct.EP // nil before Connect on a transport that connects ifaces
	memory uct.Mem
	local  uct.Mem
	key    uct.RKey
	raddr  uint64
	joined bool
	failed error // failure reported by the transport
	undo   cleanup.Stack
}

// Open implements layer.Opener.
func (l *Layer) Open(cfg layer.Config) (_ layer.Conn, err error) {
	c := &Conn{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.undo.Run())
		}
	}()
	if err := l.openMD(c); err != nil {
		return nil, err
	}
	if c.memory, err = c.alloc(); err != nil {
		return nil, err
	}
	if c.local, err = c.alloc(); err != nil {
		return nil, err
	}
	return c, c.openIface()
}

// openMD opens the memory domain that provides the transport on the device.
func (l *Layer) openMD(c *Conn) error {
	t, err := device.FindTransport(l.components(c.cfg.Fabric), c.cfg.Transport, c.cfg.Device)
	if err != nil {
		return err
	}
	key := strings.Join([]string{c.cfg.Fabric, t.Component.Name(), t.MD}, " ")
	md, release, err := l.mds.Get(key, func() (uct.MD, error) { return t.Component.OpenMD(t.MD) })
	if err != nil {
		return err
	}
	c.undo.Add(release)
	c.md, c.res = md, t.Resource
	return nil
}

func (c *Conn) alloc() (m uct.Mem, err error) {
	switch c.cfg.Memory {
	case layer.Allocated:
		m, err = c.allocate()
	case layer.Mapped:
		m, err = c.register()
	default:
		err = fmt.Errorf("uct has no operations on memory that is not registered: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	c.undo.Add(m.Close)
	return m, nil
}

func (c *Conn) allocate() (uct.Mem, error) {
	a := c.md.Ext().Alloc
	if a == nil {
		return nil, fmt.Errorf("memory domain %s allocates no memory: %w", c.md.Attr().Name, errors.ErrUnsupported)
	}
	return a.Alloc(c.cfg.MemLen, uct.AccessAll)
}

func (c *Conn) register() (uct.Mem, error) {
	r := c.md.Ext().Reg
	if r == nil {
		return nil, fmt.Errorf("memory domain %s registers no memory: %w", c.md.Attr().Name, errors.ErrUnsupported)
	}
	return r.Reg(make([]byte, c.cfg.MemLen), uct.AccessAll)
}

func (c *Conn) openIface() (err error) {
	c.iface, err = c.md.OpenIface(uct.IfaceParams{Transport: c.res.Transport, Device: c.res.Device,
		OnError: func(_ uct.EP, err error) { c.failed = err }})
	if err != nil {
		return err
	}
	c.undo.Add(c.iface.Close)
	switch caps := c.iface.Attr().Caps; {
	case caps.Has(uct.CapConnectEP):
		return c.newEP(uct.EPParams{})
	case caps.Has(uct.CapConnectIface):
		return nil
	}
	return fmt.Errorf("transport %s connects neither endpoints nor ifaces: %w", c.res.Transport, errors.ErrUnsupported)
}

func (c *Conn) newEP(p uct.EPParams) (err error) {
	if c.ep, err = c.iface.NewEP(p); err != nil {
		return err
	}
	c.undo.Add(c.ep.Close)
	return nil
}

// Address implements layer.Conn. It contains four blobs: device address, EP or iface address, rkey, region.
func (c *Conn) Address() ([]byte, error) {
	rkey, err := c.memory.PackRKey(nil)
	if err != nil {
		return nil, err
	}
	var dev, end []byte
	if a := c.iface.Ext().Address; a != nil {
		dev = a.DeviceAddr(nil)
		if c.ep == nil {
			end = a.IfaceAddr(nil)
		}
	}
	if c.ep != nil && c.ep.Ops().Connect != nil {
		end = c.ep.Ops().Connect.EPAddr(nil)
	}
	region := layer.Region{Addr: c.memory.Addr(), Len: uint64(len(c.memory.Bytes()))}
	return layer.AppendBlobs(nil, dev, end, rkey, region.Append(nil))
}

// Connect implements layer.Conn.
func (c *Conn) Connect(peer []byte) error {
	var dev, end, rkey, regionBytes []byte
	if err := layer.CutBlobs(peer, &dev, &end, &rkey, &regionBytes); err != nil {
		return err
	}
	region, err := layer.ParseRegion(regionBytes, c.cfg.MemLen)
	if err != nil {
		return err
	}
	if err := c.unpackKey(rkey); err != nil {
		return err
	}
	if err := c.join(dev, end); err != nil {
		return err
	}
	c.raddr, c.joined = region.Addr, true
	return nil
}

func (c *Conn) unpackKey(rkey []byte) (err error) {
	u := c.md.Ext().Keys
	if u == nil {
		return nil // memory of this domain needs no key
	}
	if c.key, err = u.UnpackRKey(rkey); err != nil {
		return err
	}
	c.undo.Add(func() error { u.ReleaseRKey(c.key); return nil })
	return nil
}

func (c *Conn) join(dev, end []byte) error {
	if c.ep == nil {
		return c.newEP(uct.EPParams{DeviceAddr: dev, IfaceAddr: end})
	}
	e := c.ep.Ops().Connect
	if e == nil {
		return fmt.Errorf("endpoint of %s cannot be connected: %w", c.res.Transport, errors.ErrUnsupported)
	}
	return e.Connect(dev, end)
}

// Memory implements layer.Conn.
func (c *Conn) Memory() []byte { return c.memory.Bytes() }

// Local implements layer.Conn.
func (c *Conn) Local() []byte { return c.local.Bytes() }

// Progress implements layer.Conn.
func (c *Conn) Progress() int { return c.iface.Progress() }

// Transport implements layer.Conn.
func (c *Conn) Transport() string { return c.res.Transport }

// Close implements layer.Conn.
func (c *Conn) Close() error { return c.undo.Run() }

// Iface returns the iface.
func (c *Conn) Iface() uct.Iface { return c.iface }

// EP returns the endpoint: nil before Connect on a transport that connects ifaces.
func (c *Conn) EP() uct.EP { return c.ep }

// Remote returns the address of the peer's memory, and its key. Valid after Connect.
func (c *Conn) Remote() (uint64, uct.RKey) { return c.raddr, c.key }
