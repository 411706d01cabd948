package uctlayer

import (
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct"
)

// pinger is the initiator of a ping-pong of messages. A loopback receives its own message; that is
// the round trip then, as in ucx_perftest.
type pinger struct {
	*sender
	in *inbox
}

func newPinger(o *op, s layer.Spec) (layer.Op, error) {
	id := uint8(idData)
	if o.cfg.Loopback {
		id = idEcho
	}
	m, err := newSender(o, s, id)
	if err != nil {
		return nil, err
	}
	p := &pinger{sender: m, in: newInbox(s)}
	if err := o.iface.SetAMHandler(idEcho, p.in); err != nil || s.Window == 1 {
		return p, err
	}
	return &duplex{p, uint64(s.Window)}, nil
}

// Post implements layer.Op.
func (p *pinger) Post() error { return p.push() }

// Flush waits for the reply.
func (p *pinger) Flush() error {
	for p.in.Count != p.sent {
		if err := p.progress(); err != nil {
			return err
		}
	}
	return p.in.Err
}

// duplex is a pinger with a window of messages whose replies have not arrived.
type duplex struct {
	*pinger
	window uint64
}

// Post implements layer.Op.
func (d *duplex) Post() error {
	for d.sent-d.in.Count >= d.window {
		if err := d.progress(); err != nil {
			return err
		}
	}
	return d.push()
}

// Flush waits for all replies, and until no buffer is in use.
func (d *duplex) Flush() error {
	for d.in.Count != d.sent || d.comp.Count != 0 {
		if err := d.progress(); err != nil {
			return err
		}
	}
	return d.in.Err
}

// echo is the target of a ping-pong, and of messages in both directions.
type echo struct {
	*sender
	in *inbox
}

func newEcho(o *op, s layer.Spec) (layer.Part, error) {
	m, err := newSender(o, s, idEcho)
	if err != nil {
		return nil, err
	}
	e := &echo{sender: m, in: newInbox(s)}
	return e, o.iface.SetAMHandler(idData, e.in)
}

// Progress implements layer.Part.
func (e *echo) Progress() (int, error) {
	n := e.iface.Progress()
	for e.sent != e.in.Count {
		if err := e.try(); err == uct.ErrNoResource {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
	if n == 0 && e.failed != nil {
		return 0, e.failed
	}
	return n, nil
}

// Finish implements layer.Part.
func (e *echo) Finish() (uint64, error) { return e.in.Count, e.in.Err }

// Part implements layer.Conn.
func (c *Conn) Part(s layer.Spec) (layer.Part, error) {
	if !s.Kind.TwoSided() {
		return nil, nil
	}
	o, err := c.newOp(s)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case layer.AM:
		return newSink(o, s)
	case layer.AMPing:
		return newEcho(o, s)
	}
	return layer.NewPong(c, s)
}
