// Package children asks the processes of one measurement: the same request to each,
// then the reply of each, in JSON.
package children

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/gucx/gucx/internal/cleanup"
)

// Start starts a process and returns the connection to it. Closing the process closes
// the connection.
type Start func() (net.Conn, io.Closer, error)

// Line is one end of a connection. One goroutine at a time uses it.
type Line struct {
	conn  net.Conn
	in    *json.Decoder
	out   *json.Encoder
	ahead chan json.RawMessage // nil if nothing is read ahead
	alive context.Context      // of Follow
}

// NewLine is the line over conn, which it does not own.
func NewLine(conn net.Conn) *Line {
	return &Line{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
}

// ErrGone says that the other end has closed the connection, or has died.
var ErrGone = errors.New("the process at the other end is gone")

// Receive reads into v what the other end sends. ErrGone if it never will.
func (l *Line) Receive(v any) error {
	if l.ahead == nil {
		return Gone(l.in.Decode(v))
	}
	m, ok := <-l.ahead
	if !ok {
		return ErrGone
	}
	return json.Unmarshal(m, v)
}

// Gone is ErrGone for an error of a connection that the other end has left, and err otherwise.
func Gone(err error) error {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, io.ErrClosedPipe, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, end) {
			return ErrGone
		}
	}
	return err
}

// Follow reads ahead from now on, so that the context that it returns ends with ErrGone
// when the other end is gone, whatever this one is doing. Call it once. It goes on until conn
// is closed.
func (l *Line) Follow(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	l.ahead, l.alive = make(chan json.RawMessage), ctx
	go func() {
		defer close(l.ahead)
		for {
			var m json.RawMessage
			if err := l.in.Decode(&m); err != nil {
				cancel(Gone(err))
				return
			}
			select {
			case l.ahead <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx
}

// Ended is what a process that has called Follow ends with, after err: nil if the other end is gone,
// as nobody wants to know then. A reply may find that out before what reads ahead does.
func (l *Line) Ended(err error) error {
	if errors.Is(context.Cause(l.alive), ErrGone) || errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// reply is what a process answers: a value, or why there is none.
type reply struct {
	Value any
	Error string
}

// Reply answers with v, or with the text of err. ErrGone if nobody reads it.
func (l *Line) Reply(v any, err error) error {
	if err != nil {
		return Gone(l.out.Encode(reply{Error: err.Error()}))
	}
	return Gone(l.out.Encode(reply{Value: v}))
}

// List is processes in a row.
type List []*Line

// Launch starts n processes, which undo closes. The end of ctx ends all waits for them.
func Launch(ctx context.Context, n int, start Start, undo *cleanup.Stack) (List, error) {
	var c List
	for range n {
		conn, process, err := start()
		if err != nil {
			return nil, err
		}
		undo.Add(process.Close)
		c = append(c, NewLine(conn))
	}
	stop := context.AfterFunc(ctx, c.hangUp)
	undo.Add(func() error {
		stop()
		return nil
	})
	return c, nil
}

// hangUp ends all waits, on both sides.
func (c List) hangUp() {
	for _, l := range c {
		_ = l.conn.Close() // its process closes it again
	}
}

// Ask sends each process its request before it waits for replies. The first error ends
// the connections of all, for the others may wait for the one that has it, and is
// returned.
func Ask[Value any](c List, request func(i int) any) ([]Value, error) {
	for i, l := range c {
		if err := l.out.Encode(request(i)); err != nil {
			c.hangUp()
			return nil, fmt.Errorf("process %d: %w", i, Gone(err))
		}
	}
	var (
		values = make([]Value, len(c))
		wait   sync.WaitGroup
		once   sync.Once
		first  error
	)
	for i, l := range c {
		wait.Go(func() {
			if err := l.answer(&values[i]); err != nil {
				once.Do(func() {
					first = fmt.Errorf("process %d: %w", i, err)
					c.hangUp()
				})
			}
		})
	}
	wait.Wait()
	return values, first
}

// answer reads a reply.
func (l *Line) answer(v any) error {
	r := reply{Value: v}
	if err := l.Receive(&r); err != nil {
		return err
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

// Go is the request that says no more than to go on.
func Go(int) any { return struct{}{} }
