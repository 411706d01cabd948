package uctlayer

import (
	"errors"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/uct"
)

// op repeats one operation, by a function for its kind.
type op struct {
	*Conn
	post    func(*op) error
	variant layer.Variant
	idle    layer.Idle
	buf     []byte
	iov     [1]uct.IOV
	comp    uct.Completion // counts zero-copy operations and fetches in flight
	count   uint64         // compare value of the next compare-and-swap
	word    uint64         // old value of the last fetch
	fetch   bool

	put    uct.Putter
	get    uct.Getter
	atomic uct.Atomics
}

// Op implements layer.Conn.
func (c *Conn) Op(s layer.Spec) (layer.Op, error) {
	o, err := c.newOp(s)
	if err != nil {
		return nil, err
	}
	switch s.Kind {
	case layer.AM:
		return newStream(o, s)
	case layer.AMPing:
		return newPinger(o, s)
	case layer.PutPing:
		return layer.NewPing(c, s)
	}
	return o, o.choose(s)
}

// newOp returns the common part of all operations.
func (c *Conn) newOp(s layer.Spec) (*op, error) {
	if err := s.Check(c.cfg.MemLen); err != nil {
		return nil, err
	}
	if s.Kind.Tagged() || s.Kind.Streamed() {
		return nil, layer.ErrNoSuchOp
	}
	if !c.joined {
		return nil, layer.ErrNotConnected
	}
	o := &op{Conn: c, idle: layer.NewIdle(c.cfg), buf: c.local.Bytes()[:s.Size]}
	o.comp.Func = func(*uct.Completion) {}
	o.iov[0] = uct.IOV{Buf: o.buf, Mem: c.local}
	ops := c.ep.Ops()
	o.put, o.get, o.atomic = ops.Put, ops.Get, ops.Atomics
	return o, nil
}

// choose selects the function that posts the operation.
func (o *op) choose(s layer.Spec) error {
	attr := o.iface.Attr()
	switch s.Kind {
	case layer.Flush:
		o.post = func(*op) error { return nil }
		return nil
	case layer.Put:
		l := &attr.Put
		return o.pick(s, []way{
			{layer.Short, uct.CapPutShort, 0, l.MaxShort, (*op).putShort},
			{layer.Zcopy, uct.CapPutZcopy, l.MinZcopy, l.MaxZcopy, (*op).putZcopy},
			{layer.Bcopy, uct.CapPutBcopy, 0, l.MaxBcopy, (*op).putBcopy},
		})
	case layer.Get:
		l := &attr.Get
		return o.pick(s, []way{
			{layer.Short, uct.CapGetShort, 0, l.MaxShort, (*op).getShort},
			{layer.Zcopy, uct.CapGetZcopy, l.MinZcopy, l.MaxZcopy, (*op).getZcopy},
			{layer.Bcopy, uct.CapGetBcopy, 0, l.MaxBcopy, (*op).getBcopy},
		})
	}
	return o.chooseAtomic(s, &attr.Atomic)
}

func (o *op) chooseAtomic(s layer.Spec, a *uct.AtomicAttr) error {
	var has bool
	switch s.Kind {
	case layer.Add:
		has, o.post = a.Post64.Has(uct.AtomicAdd), (*op).add
	case layer.FAdd:
		has, o.post = a.Fetch64.Has(uct.AtomicAdd), (*op).fetchAdd
	case layer.CSwap:
		has, o.post = a.Fetch64.Has(uct.AtomicCSwap), (*op).cswap
	}
	if !has {
		return &layer.LimitError{Transport: o.res.Transport, Spec: s, Limit: "the transport has no such operation"}
	}
	o.fetch = s.Kind != layer.Add
	return nil
}

// Post repeats the operation while the transport returns ErrNoResource.
func (o *op) Post() error {
	for {
		err := o.post(o)
		if err != uct.ErrNoResource {
			return err
		}
		if err := o.progress(); err != nil {
			return err
		}
	}
}

// Flush polls the EP, as a caller without other work does.
func (o *op) Flush() error {
	for {
		pending, err := o.ep.Flush(nil)
		if err != nil && err != uct.ErrNoResource {
			return o.why(err)
		}
		if err == nil && !pending {
			return o.comp.Status.Err()
		}
		if err := o.progress(); err != nil {
			return err
		}
	}
}

func (o *op) progress() error {
	if o.iface.Progress() > 0 {
		return nil
	}
	if o.failed != nil {
		return o.failed
	}
	return o.idle.Poll()
}

// Poll implements layer.Op.
func (o *op) Poll() error { return o.progress() }

// Variant implements layer.Varied.
func (o *op) Variant() layer.Variant { return o.variant }

// why adds the error that OnError received.
//
//go:noinline
func (o *op) why(err error) error {
	if o.failed != nil {
		return errors.Join(err, o.failed)
	}
	return err
}

func (o *op) Result() uint64 {
	if !o.fetch {
		return 0
	}
	return o.word
}

// counted decrements o.comp.Count, which the caller has incremented, if the operation is not
// pending.
func (o *op) counted(pending bool, err error) error {
	if !pending {
		o.comp.Count--
	}
	return err
}

func (o *op) putShort() error { return o.put.PutShort(o.buf, o.raddr, o.key) }

func (o *op) putZcopy() error {
	o.comp.Count++
	return o.counted(o.put.PutZcopy(o.iov[:], o.raddr, o.key, &o.comp))
}

func (o *op) putBcopy() error { return o.put.PutBcopy(o.buf, o.raddr, o.key) }

func (o *op) getShort() error { return o.get.GetShort(o.buf, o.raddr, o.key) }

func (o *op) getZcopy() error {
	o.comp.Count++
	return o.counted(o.get.GetZcopy(o.iov[:], o.raddr, o.key, &o.comp))
}

func (o *op) getBcopy() error {
	o.comp.Count++
	return o.counted(o.get.GetBcopy(o.buf, o.raddr, o.key, &o.comp))
}

func (o *op) add() error {
	return o.atomic.AtomicPost(uct.AtomicAdd, layer.WordLen, 1, o.raddr, o.key)
}

func (o *op) fetchAdd() error {
	o.comp.Count++
	return o.counted(o.atomic.AtomicFetch(uct.AtomicAdd, layer.WordLen, 1, &o.word, o.raddr, o.key, &o.comp))
}

func (o *op) cswap() error {
	o.comp.Count++
	err := o.counted(o.atomic.AtomicCSwap(layer.WordLen, o.count, o.count+1, &o.word, o.raddr, o.key, &o.comp))
	if err == nil {
		o.count++
	}
	return err
}
