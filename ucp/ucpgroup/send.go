package ucpgroup

import (
	"context"

	"github.com/gucx/gucx/ucp"
)

// Send sends a message to a rank and returns when buf is the caller's again: when the message
// is on its way, or kept by the receiver, or received, as [ucp.EP.TagSend] describes. A long
// message, and one for which the receiver has no room, waits for its receive. tag is from 0 to
// [MaxTag]. Messages of one communicator from one rank to another are received in the order in
// which they are sent by receives that both would match. A rank may send to itself.
//
// If ctx ends first, its error is returned, and buf is the caller's then too. If a long message is
// announced by then, that takes until the endpoint lets go, and with it ends the group: see
// [ucp.Request.GiveUp]. Errors: a
// [RankError] if the rank is gone; why the group has failed; ErrInvalidParam.
func (c *Comm) Send(ctx context.Context, dst, tag int, buf []byte) error {
	if err := c.checkSend(dst, tag); err != nil {
		return err
	}
	u, err := c.dial(dst).TagSend(sendTag(c.context, c.self, tag), buf, nil)
	if u == nil && err == nil {
		return nil
	}
	return c.finishSend(ctx, dst, u, err)
}

// SendSync is Send that returns when the message is matched with a receive.
func (c *Comm) SendSync(ctx context.Context, dst, tag int, buf []byte) error {
	if err := c.checkSend(dst, tag); err != nil {
		return err
	}
	u, err := c.dial(dst).TagSendSync(sendTag(c.context, c.self, tag), buf, nil)
	return c.finishSend(ctx, dst, u, err)
}

// Isend begins a send. A nil request says that buf is the caller's again; otherwise it is
// when the request has ended. p may be nil. It does not block, and looks at no clock. Errors
// are those of Send.
func (c *Comm) Isend(dst, tag int, buf []byte, p *ucp.OpParams) (*Request, error) {
	if err := c.checkSend(dst, tag); err != nil {
		return nil, err
	}
	u, err := c.dial(dst).TagSend(sendTag(c.context, c.self, tag), buf, p)
	return c.started(dst, u, err)
}

// IsendSync is Isend whose request ends when the message is matched with a receive.
func (c *Comm) IsendSync(dst, tag int, buf []byte, p *ucp.OpParams) (*Request, error) {
	if err := c.checkSend(dst, tag); err != nil {
		return nil, err
	}
	u, err := c.dial(dst).TagSendSync(sendTag(c.context, c.self, tag), buf, p)
	return c.started(dst, u, err)
}

// checkSend refuses what cannot be sent.
func (c *Comm) checkSend(dst, tag int) error {
	if c.freed || c.g.closed || c.g.failed != nil {
		return c.usable("send")
	}
	if uint(dst) >= uint(len(c.ranks)) {
		return invalid("send", "to rank", dst)
	}
	if uint(tag) > MaxTag {
		return invalid("send", "tag", tag)
	}
	return nil
}

// started returns what a send gives to its caller.
func (c *Comm) started(dst int, u *ucp.Request, err error) (*Request, error) {
	if err != nil {
		return nil, c.sendError(dst, err)
	}
	if u == nil {
		return nil, nil
	}
	r := c.g.newRequest(c, kindSend, c.WorldRank(dst))
	r.underway(u)
	return r, nil
}

// sendError is the error of a send that package ucp refuses.
func (c *Comm) sendError(dst int, err error) error {
	c.g.findLost(err)
	q := c.WorldRank(dst)
	if gone := c.g.peers[q].gone; gone != nil {
		return opError("send", gone)
	}
	return opError("send", &RankError{q, err})
}

// finishSend waits for a send.
//
//go:noinline
func (c *Comm) finishSend(ctx context.Context, dst int, u *ucp.Request, err error) error {
	r, err := c.started(dst, u, err)
	if r == nil || err != nil {
		return err
	}
	_, err = r.waitOrGiveUp(ctx)
	return err
}

// waitOrGiveUp is Wait for a call that is over when ctx ends.
func (r *Request) waitOrGiveUp(ctx context.Context) (Status, error) {
	if !r.Done() {
		if err := r.g.w.Until(ctx, r.done); err != nil {
			r.giveUp()
			return Status{}, err
		}
	}
	return r.take()
}
