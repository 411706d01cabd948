// Package ucplayer measures ucp as an application calls it: memory of the selected class, a key unpacked once,
// operations with the memory handle of the local buffer if it has one, and blocking flushes.
package ucplayer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/layers/device"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// Name of the layer.
const Name = "ucp"

// closeTimeout is the maximum wait for the peer when the connection is closed.
const closeTimeout = time.Second

// Layer opens connections over ucp.
type Layer struct {
	cfg        ucp.Config
	components device.Source
	contexts   layer.Share[*restricted]
}

// New returns the layer with cfg over the transports of components. A selected transport and device replace those of
// cfg.
func New(cfg ucp.Config, components device.Source) *Layer {
	return &Layer{cfg: cfg, components: components}
}

// restricted is a context with one transport, and the capabilities of the transport.
type restricted struct {
	*ucp.Context
	caps uct.Caps
}

// Conn is one side of a connection: a worker and two buffers; after Connect also an EP and the key of the peer's
// memory. The methods that are not in layer.Conn are for programs that call ucp themselves.
type Conn struct {
	cfg     layer.Config
	ctx     *restricted
	worker  *ucp.Worker
	memory  *ucp.Mem
	local   buffer
	ep      *ucp.EP
	key     *ucp.RKey
	slots   buffer         // of receives; see slotted
	watched [2]unix.PollFd // by Sleep
	over    func()         // cancels the receives of the previous operation; nil if there are none
	failed  error          // failure of the EP, or of the receive of a message
	undo    cleanup.Stack
}

// Open implements layer.Opener.
func (l *Layer) Open(cfg layer.Config) (_ layer.Conn, err error) {
	c := &Conn{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.undo.Run())
		}
	}()
	key := strings.Join([]string{cfg.Fabric, cfg.Transport, cfg.Device}, " ")
	ctx, release, err := l.contexts.Get(key, func() (*restricted, error) { return l.newContext(cfg) })
	if err != nil {
		return nil, err
	}
	c.ctx = ctx
	c.undo.Add(release)
	if c.memory, err = c.newMem(cfg.MemLen); err != nil {
		return nil, err
	}
	if c.local, err = c.newBuffer(cfg.MemLen); err != nil {
		return nil, err
	}
	if c.worker, err = c.ctx.NewWorker(ucp.WorkerConfig{}); err != nil {
		return nil, err
	}
	c.undo.Add(c.worker.Close)
	return c, nil
}

// Context opens a context restricted to the transport and the device of cfg. It ignores the other fields.
func (l *Layer) Context(cfg layer.Config) (*ucp.Context, error) {
	c, err := l.newContext(cfg)
	if err != nil {
		return nil, err
	}
	return c.Context, nil
}

// newContext opens a context restricted to the transport and the device under test.
func (l *Layer) newContext(cfg layer.Config) (*restricted, error) {
	components := l.components(cfg.Fabric)
	t, err := device.FindTransport(components, cfg.Transport, cfg.Device)
	if err != nil {
		return nil, err
	}
	user := l.cfg
	user.TLS = config.Allow(ucp.Exact(t.Resource.Transport))
	only := config.Allow(t.Device)
	switch t.Kind {
	case uct.DeviceNet:
		user.NetDevices = only
	case uct.DeviceShm:
		user.ShmDevices = only
	case uct.DeviceSelf:
		user.SelfDevices = only
	}
	caps, err := t.Caps()
	if err != nil {
		return nil, err
	}
	ctx, err := ucp.NewContext(user, components...)
	if err != nil {
		return nil, err
	}
	return &restricted{ctx, caps}, nil
}

// slotted returns the memory of receives. The first call allocates it.
func (c *Conn) slotted() (_ buffer, err error) {
	if c.slots.bytes == nil {
		c.slots, err = c.newBuffer(max(slotsLen, c.cfg.MemLen))
	}
	return c.slots, err
}

// Address implements layer.Conn. It contains two blobs: the worker address and the packed key.
func (c *Conn) Address() ([]byte, error) {
	return layer.AppendBlobs(nil, c.worker.Address(), c.memory.Pack())
}

// Connect implements layer.Conn. It creates an EP, which sends nothing yet: the first operation connects it.
func (c *Conn) Connect(peer []byte) (err error) {
	var addr, packed []byte
	if err := layer.CutBlobs(peer, &addr, &packed); err != nil {
		return err
	}
	if c.ep, err = c.worker.NewEP(addr, ucp.EPConfig{OnError: func(_ *ucp.EP, err error) { c.failed = err }}); err != nil {
		return err
	}
	c.undo.Add(c.closeEP)
	if c.key, err = c.ep.Unpack(packed); err != nil {
		return err
	}
	c.undo.Add(func() error { c.key.Close(); return nil })
	if c.key.Len() < uint64(c.cfg.MemLen) {
		return fmt.Errorf("%w: the target's memory has %d bytes, need %d", layer.ErrAddress, c.key.Len(), c.cfg.MemLen)
	}
	return nil
}

// closeEP disconnects the EP. It does not wait longer than closeTimeout, nor for a dead peer: Close of the worker
// cancels the rest.
func (c *Conn) closeEP() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if c.failed != nil || c.cfg.Context.Err() != nil {
		cancel()
	}
	if err := c.ep.CloseWait(ctx, ucp.CloseForce); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// Memory implements layer.Conn.
func (c *Conn) Memory() []byte { return c.memory.Bytes() }

// Local implements layer.Conn.
func (c *Conn) Local() []byte { return c.local.bytes }

// Progress implements layer.Conn.
func (c *Conn) Progress() int { return c.worker.Progress() }

// State implements layer.Stater.
func (c *Conn) State() string { return c.worker.State() }

// Transport implements layer.Conn.
func (c *Conn) Transport() string { return c.cfg.Transport }

// Close implements layer.Conn.
func (c *Conn) Close() error { return c.undo.Run() }

// Worker returns the worker.
func (c *Conn) Worker() *ucp.Worker { return c.worker }

// EP returns the endpoint; nil before Connect.
func (c *Conn) EP() *ucp.EP { return c.ep }

// Key returns the key of the peer's memory; nil before Connect.
func (c *Conn) Key() *ucp.RKey { return c.key }

// Mems returns the registrations of Memory and of Local; local is nil if Local is not registered.
func (c *Conn) Mems() (memory, local *ucp.Mem) { return c.memory, c.local.mem }
