package averbslayer

import (
	"encoding/binary"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// op repeats one work request, signaled as by the layer verbs.
type op struct {
	*Conn
	wr   verbs.SendWR
	nop  verbs.SendWR // a signaled write of no bytes
	idle layer.Idle

	kind       layer.Kind
	inline     bool // wr.Inline is written
	window     int
	remaining  int    // remaining posts of the window
	signaled   uint64 // number of the last signaled work request
	depth      uint64
	moderation uint64
	count      uint64 // compare value of the next compare-and-swap
}

// Op implements layer.Conn.
func (c *Conn) Op(s layer.Spec) (layer.Op, error) {
	switch {
	case s.Kind == layer.PutPing:
		return layer.NewPing(c, s)
	case s.Kind.TwoSided():
		return nil, layer.ErrNoSuchOp
	}
	wr, err := c.verbs.Request(s)
	if err != nil {
		return nil, err
	}
	o := &op{Conn: c, wr: wr, kind: s.Kind, inline: wr.Inline != nil, window: s.Window, remaining: s.Window,
		idle: c.verbs.Idle(), signaled: c.sq.Posted}
	o.depth, o.moderation = c.verbs.Lengths()
	o.nop = verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, RemoteAddr: wr.RemoteAddr, RKey: wr.RKey}
	return o, nil
}

// Part implements layer.Conn.
func (c *Conn) Part(s layer.Spec) (layer.Part, error) {
	switch {
	case s.Kind == layer.PutPing:
		return layer.NewPong(c, s)
	case s.Kind.TwoSided():
		return nil, layer.ErrNoSuchOp
	}
	return nil, nil
}

// Post implements layer.Op.
func (o *op) Post() error {
	switch o.kind {
	case layer.Flush:
		return nil
	case layer.CSwap:
		o.wr.CompareAdd, o.wr.Swap = o.count, o.count+1
		o.count++
	}
	if err := o.room(); err != nil {
		return err
	}
	var flags prm.CtrlFlags
	o.wr.Flags &^= verbs.SendSignaled
	o.remaining--
	if o.remaining == 0 || o.sq.Posted-o.signaled >= o.moderation {
		flags = prm.CtrlCQUpdate
		o.wr.Flags |= verbs.SendSignaled
		o.signaled = o.sq.Posted + 1
		if o.remaining == 0 {
			o.remaining = o.window
		}
	}
	if o.inline {
		o.sq.Write(flags, o.wr.RemoteAddr, o.wr.RKey, o.wr.Inline)
		return nil
	}
	return o.sq.Post(&o.wr)
}

// room waits until the send queue has room for a work request.
func (o *op) room() error {
	for o.sq.Posted-o.sq.Done >= o.depth {
		if err := o.Poll(); err != nil {
			return err
		}
	}
	return nil
}

// Flush polls until the last work request is complete.
func (o *op) Flush() error {
	if o.signaled != o.sq.Posted {
		if err := o.room(); err != nil {
			return err
		}
		o.remaining = o.window
		if err := o.sq.Post(&o.nop); err != nil {
			return err
		}
		o.signaled = o.sq.Posted
	}
	for o.sq.Done != o.sq.Posted {
		if err := o.Poll(); err != nil {
			return err
		}
	}
	return nil
}

// Poll implements layer.Op.
func (o *op) Poll() error {
	n, err := o.cq.Poll(&o.sq)
	if n > 0 || err != nil {
		return err
	}
	return o.idle.Poll()
}

// Result returns the value that the last fetching atomic wrote to the local buffer.
func (o *op) Result() uint64 {
	if o.kind != layer.FAdd && o.kind != layer.CSwap {
		return 0
	}
	return binary.NativeEndian.Uint64(o.Local())
}
