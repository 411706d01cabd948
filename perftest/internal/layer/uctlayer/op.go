package uctlayer

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/layer"
	"github.com/gucx/gucx/uct"
)

// op repeats one operation; each kind posts in its own way.
type op struct {
	*conn
	post  func() error
	idle  layer.Idle
	buf   []byte
	iov   [1]uct.IOV
	comp  uct.Completion // counts zero-copy operations and fetches in flight
	count uint64         // compare value of the next compare-and-swap
	word  uint64         // old value of the last fetch
	fetch bool

	put    uct.Putter
	get    uct.Getter
	atomic uct.Atomics
}

var errNotConnected = errors.New("not connected")

func (c *conn) Op(s layer.Spec) (layer.Op, error) {
	if err := s.Check(c.cfg.MemLen); err != nil {
		return nil, err
	}
	if !c.joined {
		return nil, errNotConnected
	}
	o := &op{conn: c, idle: layer.Idle{Context: c.cfg.Context}, buf: c.local.Bytes()[:s.Size]}
	o.comp.Func = func(*uct.Completion) {}
	o.iov[0] = uct.IOV{Buf: o.buf, Mem: c.local}
	o.put, _ = c.ep.(uct.Putter)
	o.get, _ = c.ep.(uct.Getter)
	o.atomic, _ = c.ep.(uct.Atomics)
	if o.post = o.poster(s); o.post == nil {
		return nil, fmt.Errorf("%v of %d bytes over %s: %w", s.Kind, s.Size, c.res.Transport, errors.ErrUnsupported)
	}
	return o, nil
}

// poster is how the transport does the operation, or nil if it cannot.
func (o *op) poster(s layer.Spec) func() error {
	attr := o.iface.Attr()
	switch s.Kind {
	case layer.Put:
		return o.putter(s.Size, attr)
	case layer.Get:
		return o.getter(s.Size, attr)
	case layer.Flush:
		return func() error { return nil }
	case layer.Add:
		if attr.Atomic.Post64.Has(uct.AtomicAdd) {
			return o.add
		}
	case layer.FAdd:
		if o.fetch = attr.Atomic.Fetch64.Has(uct.AtomicAdd); o.fetch {
			return o.fetchAdd
		}
	case layer.CSwap:
		if o.fetch = attr.Atomic.Fetch64.Has(uct.AtomicCSwap); o.fetch {
			return o.cswap
		}
	}
	return nil
}

func (o *op) putter(n int, attr *uct.IfaceAttr) func() error {
	switch {
	case attr.Caps.Has(uct.CapPutShort) && n <= attr.Put.MaxShort:
		return o.putShort
	case attr.Caps.Has(uct.CapPutZcopy) && zcopyFits(n, &attr.Put):
		return o.putZcopy
	case attr.Caps.Has(uct.CapPutBcopy) && n <= attr.Put.MaxBcopy:
		return o.putBcopy
	}
	return nil
}

func (o *op) getter(n int, attr *uct.IfaceAttr) func() error {
	switch {
	case attr.Caps.Has(uct.CapGetShort) && n <= attr.Get.MaxShort:
		return o.getShort
	case attr.Caps.Has(uct.CapGetZcopy) && zcopyFits(n, &attr.Get):
		return o.getZcopy
	case attr.Caps.Has(uct.CapGetBcopy) && n <= attr.Get.MaxBcopy:
		return o.getBcopy
	}
	return nil
}

func zcopyFits(n int, l *uct.OpLimits) bool { return n >= l.MinZcopy && n <= l.MaxZcopy }

// Post repeats the operation until the transport has room for it.
func (o *op) Post() error {
	for {
		err := o.post()
		if err != uct.ErrNoResource {
			return err
		}
		if err := o.progress(); err != nil {
			return err
		}
	}
}

// Flush polls the EP, which is what a caller without anything else to do does.
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
	return o.idle.Poll()
}

// why adds what OnError was told.
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

// count accounts for an operation with o.comp, which was counted before it.
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

func (o *op) putBcopy() error {
	_, err := o.put.PutBcopy(o, o.raddr, o.key)
	return err
}

// Pack implements uct.Packer.
func (o *op) Pack(dst []byte) int { return copy(dst, o.buf) }

func (o *op) getShort() error { return o.get.GetShort(o.buf, o.raddr, o.key) }

func (o *op) getZcopy() error {
	o.comp.Count++
	return o.counted(o.get.GetZcopy(o.iov[:], o.raddr, o.key, &o.comp))
}

func (o *op) getBcopy() error {
	o.comp.Count++
	return o.counted(o.get.GetBcopy(o, len(o.buf), o.raddr, o.key, &o.comp))
}

// Unpack implements uct.Unpacker.
func (o *op) Unpack(src []byte) { copy(o.buf, src) }

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
