package verbs

import "github.com/gucx/gucx/ucs"

// CompChannel delivers completion events of the CQs created with it. Any goroutine
// may call its methods.
type CompChannel struct {
	ctx  *Context
	p    CompChannelProvider
	life lifetime
}

// CreateCompChannel makes a channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	up := parents{&c.life}
	if err := up.adopt("create completion channel"); err != nil {
		return nil, err
	}
	p, err := c.p.CreateCompChannel()
	if err != nil {
		up.release()
		return nil, err
	}
	return &CompChannel{ctx: c, p: p}, nil
}

// FD is readable while an event is queued: until TryGet has returned the last one.
// The channel owns it: poll it, do not read or close it.
func (ch *CompChannel) FD() int { return ch.p.FD() }

// Pending reports, with one load, whether an event is queued.
func (ch *CompChannel) Pending() bool { return ch.p.Pending() }

// TryGet removes one event and returns its CQ, which is disarmed then; nil if there is none. To
// wait again, call Arm and then Poll before waiting.
func (ch *CompChannel) TryGet() *CQ { return ch.p.TryGet() }

// Provider returns the provider's half.
func (ch *CompChannel) Provider() CompChannelProvider { return ch.p }

// Close closes the channel. ErrBusy while CQs of it are open. Idempotent.
func (ch *CompChannel) Close() error {
	return ch.life.close("close completion channel", func() error {
		if err := ch.p.Close(); err != nil {
			return err
		}
		ch.ctx.life.release()
		return nil
	})
}

// CQ is a completion queue.
type CQ struct {
	ctx     *Context
	p       CQProvider
	context any
	up      parents
	life    lifetime
}

// CreateCQ makes a completion queue. ErrInvalidParam for a depth below 1, a vector below 0 or a
// channel of another context, ErrTooLong beyond DeviceAttr.MaxCQE.
func (c *Context) CreateCQ(attr CQInitAttr) (*CQ, error) {
	const op = "create CQ"
	if attr.Depth < 1 {
		return nil, invalid(op, "depth %d", attr.Depth)
	}
	if attr.Vector < 0 {
		return nil, invalid(op, "completion vector %d", attr.Vector)
	}
	if attr.Depth > c.attr.MaxCQE {
		return nil, tooLong(op, "depth", attr.Depth, c.attr.MaxCQE)
	}
	cq := &CQ{ctx: c, context: attr.Context, up: parents{&c.life}}
	if ch := attr.Channel; ch != nil {
		if ch.ctx != c {
			return nil, invalid(op, "channel of another context")
		}
		cq.up = append(cq.up, &ch.life)
	}
	if err := cq.up.adopt(op); err != nil {
		return nil, err
	}
	p, err := c.p.CreateCQ(cq, attr)
	if err != nil {
		cq.up.release()
		return nil, err
	}
	cq.p = p
	return cq, nil
}

// Context is the value of CQInitAttr.Context.
func (cq *CQ) Context() any { return cq.context }

// Poll fills wc with up to len(wc) completions, oldest first, and returns their
// number. It also drives a software device. It does not block or allocate.
// Several goroutines may poll unless the queue is SingleThreaded.
//
// EventCQErr reports that a queue has failed; it gets no completions afterwards. In
// IBTA volume 1, 11.4.2.1, Poll of a failed queue finds it empty. This Poll returns -1 when all earlier completions
// were polled, if the check costs nothing: for a SingleThreaded queue that was empty before it may return 0.
func (cq *CQ) Poll(wc []WC) int { return cq.p.Poll(wc) }

// Watch returns a watch by which the polling goroutine detects, without a call, that Poll would return
// 0. It is nil if the queue is not SingleThreaded, or if the device does not support it. It is the same
// until Close.
func (cq *CQ) Watch() *ucs.Watch { return cq.p.Watch() }

// Arm requests one event at the next completion, or the next solicited completion (its sender has
// set SendSolicited, or it is an error). If a completion has arrived since the
// last Poll, the event is raised at once. ErrInvalidState if the queue has no
// channel. It does not block.
func (cq *CQ) Arm(solicitedOnly bool) error { return cq.p.Arm(solicitedOnly) }

// Depth returns the capacity in completions, which is at least the requested one. If more are outstanding, the
// queue overruns and its QPs fail.
func (cq *CQ) Depth() int { return cq.p.Depth() }

// Provider returns the provider's half.
func (cq *CQ) Provider() CQProvider { return cq.p }

// Close destroys the queue, with its events. ErrBusy while QPs use it.
// Idempotent.
func (cq *CQ) Close() error {
	return cq.life.close("close CQ", func() error {
		if err := cq.p.Close(); err != nil {
			return err
		}
		cq.up.release()
		return nil
	})
}
