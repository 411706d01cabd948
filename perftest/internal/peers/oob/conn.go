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
	// frameTimeout bounds the rest of a message after its first byte, and the
	// sending of one: the other side has nothing to do meanwhile, but may wait long
	// for a processor.
	frameTimeout = 20 * time.Second
	// HelloTimeout bounds the wait of a server for the first message.
	HelloTimeout = 20 * time.Second
)

// Conn carries requests one way and replies the other. One goroutine at a time.
type Conn struct {
	c    net.Conn
	look *look // nil for a connection that is no socket
	// broken is why a Call left the stream in the middle of a frame, or nil.
	broken error
	late   int // replies that Ask did not wait for, and that come before the next one
}

// NewConn wraps a stream connection, which Close closes.
func NewConn(c net.Conn) *Conn { return &Conn{c: c, look: newLook(c)} }

// Close closes the connection; a blocked Call or Receive returns. Idempotent.
func (c *Conn) Close() error {
	if err := c.c.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// RemoteError is a failure that the target reported.
type RemoteError struct {
	Verb  Verb
	Layer string
	Text  string
}

// Error returns verb, layer and the target's text.
func (e *RemoteError) Error() string {
	if e.Layer == "" {
		return fmt.Sprintf("target: %s: %s", e.Verb, e.Text)
	}
	return fmt.Sprintf("target: %s %s: %s", e.Layer, e.Verb, e.Text)
}

// Call sends r and waits for its reply until ctx ends. A failure of the target is
// a *RemoteError. After any other error the connection is of no more use.
func (c *Conn) Call(ctx context.Context, r Request) (Reply, error) {
	if c.broken != nil {
		return Reply{}, c.broken
	}
	return c.call(ctx, r, 0)
}

// ErrNoReply says that no reply has come within the limit of Ask.
var ErrNoReply = errors.New("no reply")

// Ask is Call for a target that may not run: if no reply comes within the limit, it returns ErrNoReply, and
// the connection can be used as before. The connection must be a socket.
func (c *Conn) Ask(ctx context.Context, r Request, limit time.Duration) (Reply, error) {
	if c.broken != nil {
		return Reply{}, c.broken
	}
	return c.call(ctx, r, limit)
}

// call sends r and waits for its reply. A limit of 0 is none.
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

// watch makes blocked calls on the connection fail once ctx ends. After release it does nothing
// any more: the deadline of a call that ctx has just not ended would end the next one.
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

// callError prefers the reason for which ctx ended over the error of the
// connection that it caused.
func callError(ctx context.Context, verb Verb, err error) error {
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("peer: %s: %w", verb, err)
}

// Receive waits for the next request, without limit when timeout is 0; once it
// has begun to arrive it must be complete within seconds.
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

// Answer replies to the last request: with failure when it is not nil, else with r.
func (c *Conn) Answer(r Reply, failure error) error {
	if failure != nil {
		r = Reply{Error: failure.Error()}
	}
	if err := c.c.SetWriteDeadline(deadline(frameTimeout)); err != nil {
		return err
	}
	return c.send(kindReply, &r)
}

// Refuse answers something that is no request of this version with why: the header of the answer
// tells the other side which version this one is. It waits until the other side has hung up, at
// most for timeout, without limit when that is 0: an end of this side might overtake the answer.
func (c *Conn) Refuse(why error, timeout time.Duration) {
	if c.Answer(Reply{}, why) != nil || c.c.SetReadDeadline(deadline(timeout)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.c) // also what is left of the message
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
