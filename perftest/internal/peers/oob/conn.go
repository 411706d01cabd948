package oob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const (
	// frameTimeout is the maximum time for the rest of a message after its first byte, and for sending a message: the
	// other side has no other work, but may wait for a CPU.
	frameTimeout = 20 * time.Second
	// HelloTimeout is the maximum time that a server waits for the first message.
	HelloTimeout = 20 * time.Second
)

// Conn carries requests in one direction and replies in the other. One goroutine at a time may use it.
type Conn struct {
	c    net.Conn
	look *look // nil for a connection that is no socket
	// broken is the error of a Call that stopped in the middle of a frame, or nil.
	broken error
	late   int // number of replies for which CallWithin did not wait; they arrive before the next one
}

// NewConn returns a Conn over a stream connection, which Close closes.
func NewConn(c net.Conn) *Conn { return &Conn{c: c, look: newLook(c)} }

// Close closes the connection. A blocked Call or Receive returns. Idempotent.
func (c *Conn) Close() error {
	if err := c.c.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// RemoteError is an error of the target.
type RemoteError struct {
	Verb  Verb
	Layer string
	Text  string
}

// Error returns verb, layer and the text of the target.
func (e *RemoteError) Error() string {
	if e.Layer == "" {
		return fmt.Sprintf("target: %s: %s", e.Verb, e.Text)
	}
	return fmt.Sprintf("target: %s %s: %s", e.Layer, e.Verb, e.Text)
}

// Call sends r and waits for the reply until ctx ends. An error of the target is a *RemoteError. After any other error
// the connection is unusable.
func (c *Conn) Call(ctx context.Context, r Request) (Reply, error) {
	if c.broken != nil {
		return Reply{}, c.broken
	}
	return c.call(ctx, r, 0)
}

// ErrNoReply is the error of CallWithin if no reply arrives within the limit.
var ErrNoReply = errors.New("no reply")

// CallWithin is Call for a target that may not run: if no reply arrives within the limit, it returns ErrNoReply, and
// the connection remains usable. The connection must be a socket.
func (c *Conn) CallWithin(ctx context.Context, r Request, limit time.Duration) (Reply, error) {
	if c.broken != nil {
		return Reply{}, c.broken
	}
	return c.call(ctx, r, limit)
}

// call sends r and waits for the reply. 0 means no limit.
func (c *Conn) call(ctx context.Context, r Request, limit time.Duration) (Reply, error) {
	reply, err := c.exchange(ctx, &r, limit)
	if err == ErrNoReply {
		return Reply{}, err
	}
	if err != nil {
		c.broken = callError(ctx, r.Verb, err)
		return Reply{}, c.broken
	}
	if reply.Error != "" {
		return Reply{}, &RemoteError{Verb: r.Verb, Layer: r.Layer, Text: reply.Error}
	}
	return reply, nil
}

func (c *Conn) exchange(ctx context.Context, r *Request, limit time.Duration) (reply Reply, err error) {
	release := c.watch(ctx)
	defer release()
	if err := c.send(kindRequest, r); err != nil {
		return Reply{}, err
	}
	if limit > 0 && !c.Await(limit) {
		c.late++
		return Reply{}, ErrNoReply
	}
	for {
		payload, err := readFrame(c.c, kindReply, func() error { return nil })
		if err != nil {
			return Reply{}, err
		}
		if c.late == 0 {
			return reply, decode(payload, &reply)
		}
		c.late--
	}
}

// watch makes blocked calls on the connection fail when ctx ends. After release it has no effect: otherwise an end of
// ctx just after a call would fail the next call.
func (c *Conn) watch(ctx context.Context) (release func()) {
	_ = c.c.SetDeadline(time.Time{})
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.c.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// callError returns the cause of the end of ctx, if that has caused the error of the connection, otherwise the error.
func callError(ctx context.Context, verb Verb, err error) error {
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("peer: %s: %w", verb, err)
}

// Receive waits for the next request, without limit if timeout is 0. After its first byte the request must be complete
// within frameTimeout.
func (c *Conn) Receive(timeout time.Duration) (Request, error) {
	if err := c.c.SetReadDeadline(deadline(timeout)); err != nil {
		return Request{}, err
	}
	payload, err := readFrame(c.c, kindRequest, func() error {
		return c.c.SetReadDeadline(deadline(frameTimeout))
	})
	if err != nil {
		return Request{}, err
	}
	var r Request
	if err := decode(payload, &r); err != nil {
		return Request{}, err
	}
	return r, r.check()
}

// Reply replies to the last request: with failure if it is not nil, otherwise with r.
func (c *Conn) Reply(r Reply, failure error) error {
	if failure != nil {
		r = Reply{Error: failure.Error()}
	}
	if err := c.c.SetWriteDeadline(deadline(frameTimeout)); err != nil {
		return err
	}
	return c.send(kindReply, &r)
}

// Refuse replies with why to data that is no request of this version. The header of the reply shows the version of this
// side. Refuse then waits until the other side has closed the connection, at most for timeout (0: without limit):
// closing this side earlier might discard the reply.
func (c *Conn) Refuse(why error, timeout time.Duration) {
	if c.Reply(Reply{}, why) != nil || c.c.SetReadDeadline(deadline(timeout)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.c) // also the rest of the message
}

func deadline(timeout time.Duration) time.Time {
	if timeout == 0 {
		return time.Time{}
	}
	return time.Now().Add(timeout)
}

func (c *Conn) send(k kind, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	frame, err := appendFrame(nil, k, payload)
	if err != nil {
		return err
	}
	_, err = c.c.Write(frame)
	return err
}
