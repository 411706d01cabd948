package verbslayer

import (
	"encoding/binary"
	"errors"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// op repeats one work request.
type op struct {
	*Conn
	wr   [1]verbs.SendWR
	nop  [1]verbs.SendWR // a signaled write of no bytes
	idle layer.Idle

	kind       layer.Kind
	window     int
	remaining  int    // remaining posts of the window
	signaled   uint64 // ID of the last signaled work request
	depth      uint64
	moderation uint64
	count      uint64 // compare value of the next compare-and-swap
}

// Op implements layer.Conn.
func (c *Conn) Op(s layer.Spec) (layer.Op, error) {
	o, err := c.newOp(s)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case layer.PutPing:
		return layer.NewPing(c, s)
	case layer.AM, layer.AMPing:
		m, err := newMessenger(o, &s)
		if err != nil {
			return nil, err
		}
		return layer.NewMessageOp(m, s, m.in, m.note, o.idle, c.cfg.Loopback), nil
	}
	return o, nil
}

// newOp returns the common part of all operations.
func (c *Conn) newOp(s layer.Spec) (*op, error) {
	wr, err := c.Request(s)
	if err != nil {
		return nil, err
	}
	o := &op{Conn: c, kind: s.Kind, window: s.Window, remaining: s.Window, idle: c.Idle(), signaled: c.posted}
	o.depth, o.moderation = c.Lengths()
	o.nop[0] = verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, RemoteAddr: wr.RemoteAddr, RKey: wr.RKey}
	o.wr[0] = wr
	return o, nil
}

// Part implements layer.Conn.
func (c *Conn) Part(s layer.Spec) (layer.Part, error) {
	if !s.Kind.TwoSided() {
		return nil, nil
	}
	o, err := c.newOp(s)
	if err != nil {
		return nil, err
	}
	if s.Kind == layer.PutPing {
		return layer.NewPong(c, s)
	}
	m, err := newMessenger(o, &s)
	if err != nil {
		return nil, err
	}
	return layer.NewMessagePart(m, s, m.in, m.note), nil
}

// Request returns the work request of an operation, unsignaled. Errors as Op.
func (c *Conn) Request(s layer.Spec) (wr verbs.SendWR, err error) {
	if err := s.Check(len(c.Memory())); err != nil {
		return wr, err
	}
	switch {
	case c.peer == nil:
		return wr, layer.ErrNotConnected
	case s.Kind.Tagged() || s.Kind.Streamed():
		return wr, layer.ErrNoSuchOp
	}
	wr.RemoteAddr, wr.RKey = c.peer.Memory.Addr, c.peer.RKey
	if s.Kind == layer.Flush {
		return wr, nil
	}
	wr.SGList = []verbs.SGE{c.local.SGE(0, s.Size)}
	if (s.Kind == layer.Put || s.Kind.Message()) && s.Size <= c.queues.inline {
		wr.Flags, wr.SGList, wr.Inline = verbs.SendInline, nil, c.local.Bytes()[:s.Size]
	}
	switch s.Kind {
	case layer.Put:
		wr.Opcode = verbs.OpRDMAWrite
	case layer.AM, layer.AMPing:
		wr.Opcode = verbs.OpSend
	case layer.Get:
		wr.Opcode = verbs.OpRDMARead
	case layer.Add, layer.FAdd:
		// Verbs have no add without result: the result is fetched and ignored.
		wr.Opcode, wr.CompareAdd = verbs.OpAtomicFetchAdd, 1
	case layer.CSwap:
		wr.Opcode = verbs.OpAtomicCmpSwap
	}
	return wr, nil
}

// Post posts the work request. It is signaled at the end of a window, and often enough within it
// that the queue does not fill up.
func (o *op) Post() error {
	switch o.kind {
	case layer.Flush:
		return nil
	case layer.CSwap:
		o.wr[0].CompareAdd, o.wr[0].Swap = o.count, o.count+1
		o.count++
	}
	if o.posted-o.done >= o.depth { // room is not inlined
		if err := o.room(); err != nil {
			return err
		}
	}
	wr := &o.wr[0]
	wr.Flags &^= verbs.SendSignaled
	o.remaining--
	if o.remaining == 0 || o.posted-o.signaled >= o.moderation {
		wr.Flags |= verbs.SendSignaled
		o.signaled = o.posted + 1
		if o.remaining == 0 {
			o.remaining = o.window
		}
	}
	o.posted++
	wr.ID = o.posted
	_, err := o.qp.PostSend(o.wr[:])
	return err
}

// room waits until the send queue has room for a work request.
func (o *op) room() error {
	for o.posted-o.done >= o.depth {
		if err := o.poll(); err != nil {
			return err
		}
	}
	return nil
}

// Flush polls until the last work request is complete. RC completes in order, and an RDMA write
// completes when its data is in the memory of the target, or acknowledged by the target.
func (o *op) Flush() error {
	if o.signaled != o.posted {
		if err := o.postNop(); err != nil {
			return err
		}
	}
	for o.done != o.posted {
		if err := o.poll(); err != nil {
			return err
		}
	}
	return nil
}

// postNop posts a signaled work request after unsignaled ones, for a flush that is not at the end
// of a window.
func (o *op) postNop() error {
	if err := o.room(); err != nil {
		return err
	}
	o.remaining = o.window
	o.posted++
	o.signaled = o.posted
	o.nop[0].ID = o.posted
	_, err := o.qp.PostSend(o.nop[:])
	return err
}

// Poll implements layer.Op.
func (o *op) Poll() error { return o.poll() }

// poll polls the available completions.
func (o *op) poll() error {
	n := o.cq.Poll(o.wc[:])
	if n == 0 {
		return o.idle.Poll()
	}
	return o.handleCompletions(n)
}

// handleCompletions handles n completions of sends; a negative n means that the queue has overrun.
func (o *op) handleCompletions(n int) error {
	if n < 0 {
		return errOverrun
	}
	return o.Complete(o.wc[:n])
}

var errOverrun = errors.New("completion queue overrun")

// Result returns the value that the last fetching atomic wrote to the local buffer.
func (o *op) Result() uint64 {
	if o.kind != layer.FAdd && o.kind != layer.CSwap {
		return 0
	}
	return binary.NativeEndian.Uint64(o.local.Bytes())
}
