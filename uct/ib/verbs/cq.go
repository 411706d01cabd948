package verbs

import "github.com/gucx/gucx/ucs"

// CompChannel delivers completion events of the CQs created with it. Its methods
// may be called by any goroutine.
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

// FD becomes readable when an event waits, and stops to be when TryGet has taken
// the last. It belongs to the channel: poll it, do not read or close it.
func (ch *CompChannel) FD() int { return ch.p.FD() }

// Pending reports, with one load, whether an event waits.
func (ch *CompChannel) Pending() bool { return ch.p.Pending() }

// TryGet takes one event and returns its CQ, or nil. The CQ is disarmed then: to
// wait again, Arm it and Poll it once more before waiting.
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
// number. EventCQErr is what tells that a queue has failed, and takes no completions
// any more: for Poll of the verbs it is empty then (IBTA volume 1, 11.4.2.1). This one
// returns -1 where that costs nothing, when what the queue still held has been taken; a
// SingleThreaded queue that was empty before may go on with 0. It also lets a software
// device make progress. It does not block or allocate.
// Several goroutines may poll unless the queue is SingleThreaded.
func (cq *CQ) Poll(wc []WC) int { return cq.p.Poll(wc) }

// Watch tells the goroutine that polls, without a call, that Poll would find
// nothing. nil unless the queue is SingleThreaded, and where the device cannot
// tell. It stays the same until Close.
func (cq *CQ) Watch() *ucs.Watch { return cq.p.Watch() }

// Arm asks for one event at the next completion, or solicited completion (one
// whose sender set SendSolicited, or an error). A completion that came since the
// last Poll raises the event at once. ErrInvalidState if the queue has no
// channel. It does not block.
func (cq *CQ) Arm(solicitedOnly bool) error { return cq.p.Arm(solicitedOnly) }

// Depth is the number of completions that fit: at least what was asked for. The
// queue overruns, and its QPs fail, when more are outstanding.
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
