package ucpgroup

import (
	"context"

	"github.com/gucx/gucx/ucp"
)

// Send sends a message to a rank and returns when buf belongs to the caller again: when the message
// is sent, stored by the receiver, or received, as [ucp.EP.TagSend] describes. A large
// message, and one for which the receiver has no room, waits for its receive. tag is from 0 to
// [MaxTag]. Of the messages of one rank that match a receive, the receive gets the one that was sent first. A rank may send
// to itself.
//
// If ctx is done first, Send returns its error, and buf belongs to the caller. If the receiver has got the RTS of a large
// message by then, Send first waits until the receiver does not use buf any more. If the receiver does not reply in time,
// the endpoint fails, and so does the group: see [ucp.Request.GiveUp]. Errors: a [RankError] if the rank is gone; the reason
// why the group has failed; ErrInvalidParam.
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

// SendSync is Send, but returns when a receive has matched the message.
func (c *Comm) SendSync(ctx context.Context, dst, tag int, buf []byte) error {
	if err := c.checkSend(dst, tag); err != nil {
		return err
	}
	u, err := c.dial(dst).TagSendSync(sendTag(c.context, c.self, tag), buf, nil)
	return c.finishSend(ctx, dst, u, err)
}

// Isend begins a send. If the request is nil, buf belongs to the caller again; otherwise
// when the request is complete. p may be nil. Isend does not block and reads no clock. Errors
// are those of Send.
func (c *Comm) Isend(dst, tag int, buf []byte, p *ucp.OpParams) (*Request, error) {
	if err := c.checkSend(dst, tag); err != nil {
		return nil, err
	}
	u, err := c.dial(dst).TagSend(sendTag(c.context, c.self, tag), buf, p)
	return c.started(dst, u, err)
}

// IsendSync is Isend, but its request completes when a receive has matched the message.
func (c *Comm) IsendSync(dst, tag int, buf []byte, p *ucp.OpParams) (*Request, error) {
	if err := c.checkSend(dst, tag); err != nil {
		return nil, err
	}
	u, err := c.dial(dst).TagSendSync(sendTag(c.context, c.self, tag), buf, p)
	return c.started(dst, u, err)
}

// checkSend returns the error of an invalid send.
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

// started returns the result of the call that begins a send.
func (c *Comm) started(dst int, u *ucp.Request, err error) (*Request, error) {
	if err != nil {
		return nil, c.sendError(dst, err)
	}
	if u == nil {
		return nil, nil
	}
	r := c.g.newRequest(c, kindSend, c.WorldRank(dst))
	r.track(u)
	return r, nil
}

// sendError returns the error of a send that package ucp has rejected.
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

// waitOrGiveUp is Wait for a call that aborts the operation when ctx is done.
func (r *Request) waitOrGiveUp(ctx context.Context) (Status, error) {
	if !r.Done() {
		if err := r.g.w.Until(ctx, r.done); err != nil {
			r.giveUp()
			return Status{}, err
		}
	}
	return r.take()
}
