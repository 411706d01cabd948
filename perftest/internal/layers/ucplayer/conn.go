// Package ucplayer measures ucp as an application calls it: memory of the class that is asked
// for, a key unpacked once, operations with the memory handle of the local buffer, if it has one,
// blocking flushes.
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

// closeTimeout bounds the wait for a peer at the end.
const closeTimeout = time.Second

// Layer opens connections over ucp.
type Layer struct {
	cfg        ucp.Config
	components device.Source
	contexts   layer.Share[*restricted]
}

// New makes the layer with cfg over the transports of components. The transport and
// the device that are asked for replace those of cfg.
func New(cfg ucp.Config, components device.Source) *Layer {
	return &Layer{cfg: cfg, components: components}
}

// restricted is a context with one transport, and what that can do.
type restricted struct {
	*ucp.Context
	caps uct.Caps
}

// Conn is one end: a worker and two buffers; with a peer, an EP and its key. Its methods other than those of
// layer.Conn are for programs that call ucp themselves.
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
	over    func()         // ends the receives of the operation before; nil for nothing
	failed  error          // what ucp said of the EP
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

// Context opens a context with the transport and the device of cfg alone, of which the rest
// has no effect.
func (l *Layer) Context(cfg layer.Config) (*ucp.Context, error) {
	c, err := l.newContext(cfg)
	if err != nil {
		return nil, err
	}
	return c.Context, nil
}

// newContext restricts ucp to the transport and the device under test.
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

// slotted is the memory of receives, made when it is needed first.
func (c *Conn) slotted() (_ buffer, err error) {
	if c.slots.bytes == nil {
		c.slots, err = c.newBuffer(max(slotsLen, c.cfg.MemLen))
	}
	return c.slots, err
}

// Address implements layer.Conn. It has two parts: worker address and packed key.
func (c *Conn) Address() ([]byte, error) {
	return layer.AppendBlobs(nil, c.worker.Address(), c.memory.Pack())
}

// Connect implements layer.Conn. It makes an EP, which sends nothing yet: the first operation connects it.
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

// closeEP disconnects. A peer that does not take that in time is not waited for, nor
// one that is gone: the worker's Close ends everything.
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

// Mems returns the registrations of Memory and of Local; local is nil if that is plain memory.
func (c *Conn) Mems() (memory, local *ucp.Mem) { return c.memory, c.local.mem }
