package ucplayer

import (
	"context"
	"errors"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/uct"
)

// op repeats one operation.
type op struct {
	*Conn
	kind   layer.Kind
	buf    []byte
	params *ucp.OpParams // of operations on buf
	idle   layer.Idle
	raddr  uint64
	count  uint64 // compare value of the next compare-and-swap
	word   uint64 // old value of the last fetch
}

// Op implements layer.Conn.
func (c *Conn) Op(s layer.Spec) (layer.Op, error) {
	o, err := c.newOp(s)
	if err != nil {
		return nil, err
	}
	if s.Kind == layer.PutPing {
		return layer.NewPing(c, s)
	}
	if !s.Kind.Message() {
		return &o, nil
	}
	in, note := newInbox(s), &layer.Note{}
	m, err := newMessages(o, s, in, note)
	if err != nil {
		return nil, err
	}
	return layer.NewMessageOp(m, s, in, note, o.idle, c.cfg.Loopback), nil
}

// newMessages returns the exchange of messages of a kind.
func newMessages(o op, s layer.Spec, in *layer.Inbox, note *layer.Note) (layer.Messenger, error) {
	if o.over != nil {
		o.over()
		o.over = nil
	}
	if s.Kind == layer.AM || s.Kind == layer.AMPing {
		return newActive(o, s, in, note), nil
	}
	return newPosted(o, s, in, note)
}

// newInbox returns an Inbox for messages of s.
func newInbox(s layer.Spec) *layer.Inbox {
	in := layer.NewInbox(s)
	in.Repeats = true
	return &in
}

// newOp returns the common part of all operations.
func (c *Conn) newOp(s layer.Spec) (op, error) {
	if err := s.Check(c.cfg.MemLen); err != nil {
		return op{}, err
	}
	if c.key == nil {
		return op{}, layer.ErrNotConnected
	}
	if limit := c.limit(s); limit != "" {
		return op{}, &layer.LimitError{Transport: c.cfg.Transport, Spec: s, Limit: limit}
	}
	o := op{Conn: c, kind: s.Kind, buf: c.local.bytes[:s.Size], idle: layer.NewIdle(c.cfg), params: c.local.params(), raddr: c.key.Addr()}
	if c.cfg.Sleep {
		o.idle.Sleeper = c
	}
	return o, nil
}

// limit returns the reason why an operation is not possible; "" if it is.
func (c *Conn) limit(s layer.Spec) string {
	switch {
	case !c.has(s.Kind):
		return "the transport has no such operation"
	case c.cfg.Sleep && s.Kind == layer.PutPing:
		return "a put does not wake a sleeping target"
	case s.Layouts.Recv != layer.Contig && !s.Kind.Tagged():
		return "the receiver gets an active message in one piece"
	}
	return ""
}

// has reports whether ucp supports the operation over the transport. The target executes atomics
// that the transport lacks, if the transport can reach its memory.
func (c *Conn) has(k layer.Kind) bool {
	switch {
	case k == layer.Put || k == layer.PutPing:
		return c.ctx.caps&uct.CapPut != 0
	case k == layer.Get:
		return c.ctx.caps&uct.CapGet != 0
	case k.Atomic():
		return c.ctx.caps&(uct.CapPut|uct.CapGet|uct.CapAtomic) != 0
	}
	return true
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
	in, note := newInbox(s), &layer.Note{}
	m, err := newMessages(o, s, in, note)
	if err != nil {
		return nil, err
	}
	return layer.NewMessagePart(m, s, in, note), nil
}

// Poll implements layer.Op.
func (o *op) Poll() error {
	if o.worker.Progress() > 0 {
		return nil
	}
	if o.failed != nil {
		return o.failed
	}
	return o.idle.Poll()
}

// Post starts the operation. If ucp returns a request, Post releases it; Flush waits for the
// operation.
func (o *op) Post() error {
	r, err := o.start()
	if r != nil {
		r.Release()
	}
	return err
}

func (o *op) start() (*ucp.Request, error) {
	switch o.kind {
	case layer.Put:
		return nil, o.ep.PutImplicit(o.buf, o.raddr, o.key, o.params)
	case layer.Get:
		return nil, o.ep.GetImplicit(o.buf, o.raddr, o.key, o.params)
	case layer.Add:
		return nil, o.ep.AtomicPost(uct.AtomicAdd, layer.WordLen, 1, o.raddr, o.key)
	case layer.FAdd:
		return nil, o.ep.AtomicFetchImplicit(uct.AtomicAdd, layer.WordLen, 1, &o.word, o.raddr, o.key)
	case layer.CSwap:
		o.count++
		return nil, o.ep.AtomicCSwapImplicit(layer.WordLen, o.count-1, o.count, &o.word, o.raddr, o.key)
	}
	return nil, nil
}

// Flush implements layer.Op.
func (o *op) Flush() error {
	if o.cfg.Sleep {
		return o.flushAsleep()
	}
	for {
		err := o.ep.FlushWait(o.cfg.Wait())
		if err == nil || !errors.Is(err, context.Canceled) && o.cfg.Context.Err() == nil {
			return err
		}
		if err := o.cfg.Interrupted(); err != nil {
			return err
		}
	}
}

// Result implements layer.Op.
func (o *op) Result() uint64 { return o.word }
