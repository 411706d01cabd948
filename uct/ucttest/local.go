package ucttest

import (
	"errors"
	"io"
	"sync"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
)

// LocalPeer returns a Harness.StartPeer whose peers are goroutines of this process, for configurations that cannot run
// in another process. kill must destroy the peer's domain and iface as the death of its process would. The peer makes no
// progress during kill. After kill, Close of its objects must return, with or without an error.
func LocalPeer(h Harness, kill func(uct.MD, uct.Iface) error) func() (*Peer, error) {
	return func() (*Peer, error) {
		requests, toPeer := io.Pipe()
		fromPeer, replies := io.Pipe()
		c := &localPeer{kill: kill, ended: make(chan error, 1), pipes: []io.Closer{requests, replies}}
		inner := h
		inner.OpenMD = c.stoppable(h.OpenMD)
		go func() {
			err := ServePeer(inner, requests, replies)
			replies.Close()
			c.ended <- err
		}()
		return NewPeer(toPeer, fromPeer, c), nil
	}
}

// localPeer is the Control of a peer that is a goroutine.
type localPeer struct {
	kill  func(uct.MD, uct.Iface) error
	pipes []io.Closer
	ended chan error
	dead  bool

	gate  sync.Mutex // locked while the peer is stopped
	held  bool
	md    uct.MD
	iface uct.Iface
}

// stoppable returns an open function whose ifaces block in Progress while the peer is stopped.
func (c *localPeer) stoppable(open func() (uct.MD, error)) func() (uct.MD, error) {
	return func() (uct.MD, error) {
		md, err := open()
		if err != nil {
			return nil, err
		}
		c.md = md
		return wrap.Domain(&notingMD{md, c}, wrap.Hooks{Iface: func(i *wrap.Iface) {
			i.Iface = &gatedIface{i.Iface, c}
		}}), nil
	}
}

// notingMD stores the transport's iface in c.
type notingMD struct {
	uct.MD
	c *localPeer
}

func (m *notingMD) OpenIface(p uct.IfaceParams) (i uct.Iface, err error) {
	i, err = m.MD.OpenIface(p)
	m.c.iface = i
	return i, err
}

type gatedIface struct {
	uct.Iface
	c *localPeer
}

func (i *gatedIface) Progress() int {
	i.c.gate.Lock()
	defer i.c.gate.Unlock()
	return i.Iface.Progress()
}

// Stop implements Control. The caller must have received all replies: the peer then does nothing but Progress.
func (c *localPeer) Stop() error {
	c.gate.Lock()
	c.held = true
	return nil
}

// Continue implements Control.
func (c *localPeer) Continue() error {
	if c.held {
		c.held = false
		c.gate.Unlock()
	}
	return nil
}

// Kill implements Control.
func (c *localPeer) Kill() error {
	if !c.held {
		if err := c.Stop(); err != nil {
			return err
		}
	}
	c.dead = true
	err := c.kill(c.md, c.iface)
	for _, p := range c.pipes {
		err = errors.Join(err, p.Close())
	}
	return errors.Join(err, c.Continue())
}

// Wait implements Control.
func (c *localPeer) Wait() error {
	err := errors.Join(c.Continue(), <-c.ended)
	if c.dead {
		return nil
	}
	return err
}
