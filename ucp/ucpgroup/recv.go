package ucpgroup

import (
	"context"

	"github.com/gucx/gucx/ucp"
)

// Recv receives a message from source, or [AnySource], with tag, or [AnyTag], and returns when
// it is in buf. A message that is longer than buf fills it and ends with ErrTruncated; the
// status has its length. If ctx ends first, its error is returned, and buf is the caller's: a
// message that was coming into it is lost, any other stays for the next receive. Errors
// besides: a [RankError] if source is gone, or every other rank is where it is AnySource; why
// the group has failed; ErrInvalidParam.
func (c *Comm) Recv(ctx context.Context, source, tag int, buf []byte) (Status, error) {
	r, err := c.Irecv(source, tag, buf, nil)
	if err != nil {
		return Status{}, err
	}
	return r.waitOrGiveUp(ctx)
}

// Irecv begins a receive. buf is the group's until the request has ended, which is never nil:
// a status belongs to it. p may be nil. It does not block, and looks at no clock. What Recv
// returns the request does.
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
		r.underway(u)
		r.abortIfDead()
	}
	return r, nil
}

// abortIfDead ends a receive for which no message can come any more.
func (r *Request) abortIfDead() {
	if err := r.cannotEnd(); err != nil {
		r.abort(err)
	}
}

// checkRecv refuses what cannot be received.
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

// Sendrecv sends a message and receives one, which do not wait for each other, and returns when
// both have ended: what an exchange with neighbors needs. The buffers must not overlap. Errors
// are those of Send and Recv; that of the receive if both fail.
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

// Probe waits for a message that Recv with the same source and tag would get, and leaves it.
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

// Iprobe is Probe that makes progress once and does not wait. It looks at no clock.
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
