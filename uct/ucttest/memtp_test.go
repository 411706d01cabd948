package ucttest_test

import (
	"io"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
	"github.com/gucx/gucx/uct/ucttest/memtp"
)

// memHarness opens memtp in a new world. change may be nil.
func memHarness(change func(*memtp.Config)) ucttest.Harness {
	world := memtp.NewWorld()
	h := ucttest.Harness{
		OpenMD:    world.OpenMD,
		Transport: memtp.Transport,
		Config: func(o ucttest.Options) any {
			c := &memtp.Config{TxDepth: o.TxDepth, RxDepth: o.RxDepth}
			if change != nil {
				change(c)
			}
			return c
		},
		OneSided: true,
	}
	h.StartPeer = func() (*ucttest.Peer, error) { return startPeer(world, h), nil }
	return h
}

// local is a peer on a goroutine. Its memory domain can be stopped and killed as
// if it were a process.
type local struct {
	world *memtp.World
	md    uct.MD
	gate  sync.Mutex // held: the peer is stopped
	held  bool
	pipes []io.Closer
	ended chan error
	dead  bool
}

// startPeer runs ucttest.ServePeer on a goroutine.
func startPeer(world *memtp.World, h ucttest.Harness) *ucttest.Peer {
	requests, toPeer := io.Pipe()
	fromPeer, replies := io.Pipe()
	c := &local{world: world, ended: make(chan error, 1), pipes: []io.Closer{requests, replies}}
	h.OpenMD = func() (uct.MD, error) {
		md, err := world.OpenMD()
		c.md = md
		return &stoppableMD{md.(*memtp.MD), c}, err
	}
	go func() {
		err := ucttest.ServePeer(h, requests, replies)
		replies.Close()
		c.ended <- err
	}()
	return ucttest.NewPeer(toPeer, fromPeer, c)
}

// stoppableMD opens ifaces that stand still while the peer is stopped.
type stoppableMD struct {
	*memtp.MD
	c *local
}

func (m *stoppableMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	i, err := m.MD.OpenIface(p)
	if err != nil {
		return nil, err
	}
	return &stoppableIface{i.(*memtp.Iface), m.c}, nil
}

type stoppableIface struct {
	*memtp.Iface
	c *local
}

func (i *stoppableIface) Progress() int {
	i.c.gate.Lock()
	defer i.c.gate.Unlock()
	return i.Iface.Progress()
}

func (c *local) Stop() error {
	c.gate.Lock()
	c.held = true
	return nil
}

func (c *local) Continue() error {
	if c.held {
		c.held = false
		c.gate.Unlock()
	}
	return nil
}

func (c *local) Kill() error {
	c.dead = true
	c.world.Kill(c.md)
	for _, p := range c.pipes {
		if err := p.Close(); err != nil {
			return err
		}
	}
	return c.Continue()
}

func (c *local) Wait() error {
	if err := c.Continue(); err != nil {
		return err
	}
	if err := <-c.ended; !c.dead {
		return err
	}
	return nil
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReference(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*memtp.Config)
	}{
		{"iface", nil},
		{"ep", func(c *memtp.Config) { c.ConnectEP = true }},
		{"am only", func(c *memtp.Config) { c.AMOnly = true }},
		{"am only, ep", func(c *memtp.Config) { c.AMOnly, c.ConnectEP = true, true }},
	} {
		t.Run(tc.name, func(t *testing.T) { ucttest.Test(t, memHarness(tc.change)) })
	}
}
