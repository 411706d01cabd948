package ucpgroup

import (
	"context"

	"github.com/gucx/gucx/ucp"
)

// Recv receives a message from source, or [AnySource], with tag, or [AnyTag], and returns when
// it is in buf. If the message is longer than buf, Recv fills buf and returns ErrTruncated; the
// status has the length of the message. If ctx is done first, Recv returns its error, and buf belongs to the
// caller: a message that was being received into buf is lost, any other message remains for the next receive. Other
// errors: a [RankError] if source is gone, or if all other ranks are gone and source is AnySource; the reason why
// the group has failed; ErrInvalidParam.
func (c *Comm) Recv(ctx context.Context, source, tag int, buf []byte) (Status, error) {
	r, err := c.Irecv(source, tag, buf, nil)
	if err != nil {
		return Status{}, err
	}
	return r.waitOrGiveUp(ctx)
}

// Irecv begins a receive. buf belongs to the group until the request is complete. The request is never nil,
// because it has the status. p may be nil. Irecv does not block and reads no clock. The request completes with the
// errors of Recv.
func (c *Comm) Irecv(source, tag int, buf []byte, p *ucp.OpParams) (*Request, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return nil, err
	}
	peer := AnySource
	if source != AnySource {
		peer = c.WorldRank(source)
	}
	want, mask := recvTag(c.context, peer, tag)
	r := c.g.newRequest(c, kindRecv, peer)
	r.info.Tag, r.info.Length = want, 0
	u, err := c.g.w.TagRecv(buf, want, mask, &r.info, p)
	switch {
	case err != nil:
		r.err = opError("receive", err)
	case u != nil:
		r.track(u)
		r.abortIfDead()
	}
	return r, nil
}

// abortIfDead fails a receive for which no message can arrive any more.
func (r *Request) abortIfDead() {
	if err := r.whyImpossible(); err != nil {
		r.abort(err)
	}
}

// checkRecv returns the error of an invalid receive.
func (c *Comm) checkRecv(source, tag int) error {
	if c.freed || c.g.closed || c.g.failed != nil {
		return c.usable("receive")
	}
	if uint(source) >= uint(len(c.ranks)) && source != AnySource {
		return invalid("receive", "from rank", source)
	}
	if uint(tag) > MaxTag && tag != AnyTag {
		return invalid("receive", "tag", tag)
	}
	return nil
}

// Sendrecv sends a message and receives another one at the same time, and returns when
// both are complete, as an exchange with neighbors needs. The buffers must not overlap. Errors
// are those of Send and Recv; the error of the receive if both fail.
func (c *Comm) Sendrecv(ctx context.Context, dst, sendTag int, send []byte, source, recvTag int, recv []byte) (Status, error) {
	in, err := c.Irecv(source, recvTag, recv, nil)
	if err != nil {
		return Status{}, err
	}
	out, err := c.Isend(dst, sendTag, send, nil)
	if err != nil {
		in.giveUp()
		return Status{}, err
	}
	st, err := in.waitOrGiveUp(ctx)
	if out == nil {
		return st, err
	}
	if _, errSend := out.waitOrGiveUp(ctx); err == nil {
		err = errSend
	}
	return st, err
}

// Probe waits for a message that Recv with the same source and tag would receive, and does not receive it.
// Errors are those of Recv.
func (c *Comm) Probe(ctx context.Context, source, tag int) (st Status, err error) {
	found := false
	errWait := c.g.w.Until(ctx, func() bool {
		c.g.step()
		st, found, err = c.probe(source, tag)
		return found || err != nil
	})
	if errWait != nil {
		return Status{}, errWait
	}
	return st, err
}

// Iprobe is Probe that makes progress once and does not wait. It reads no clock.
func (c *Comm) Iprobe(source, tag int) (st Status, found bool, err error) {
	c.g.Progress()
	return c.probe(source, tag)
}

// probe looks for a message.
func (c *Comm) probe(source, tag int) (Status, bool, error) {
	if err := c.checkRecv(source, tag); err != nil {
		return Status{}, false, err
	}
	peer, gone := AnySource, error(nil)
	if source != AnySource {
		peer, gone = c.WorldRank(source), c.peer(source).gone
	}
	want, mask := recvTag(c.context, peer, tag)
	if _, info, ok := c.g.w.TagProbe(want, mask, false); ok {
		st := c.statusOf(info.Tag, info.Length)
		if st.Source < 0 {
			return Status{}, false, c.failForeign("probe", info.Tag)
		}
		return st, true, nil
	}
	if source == AnySource {
		gone = c.allGone()
	}
	if gone != nil {
		return Status{}, false, opError("probe", gone)
	}
	return Status{}, false, nil
}
