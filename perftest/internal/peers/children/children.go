// Package children queries the processes of one measurement: it sends the same request to each, and
// reads the reply of each, in JSON.
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

// Start starts a process and returns the connection to it. Closing the process closes the
// connection.
type Start func() (net.Conn, io.Closer, error)

// Line is one side of a connection. One goroutine at a time may use it.
type Line struct {
	conn  net.Conn
	in    *json.Decoder
	out   *json.Encoder
	ahead chan json.RawMessage // nil if nothing is read ahead
	alive context.Context      // of Follow
}

// NewLine returns a line over conn. It does not close conn.
func NewLine(conn net.Conn) *Line {
	return &Line{conn: conn, in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
}

// ErrGone is the error of a connection that the other side has closed, or whose process has died.
var ErrGone = errors.New("the process at the other end is gone")

// Receive reads into v the next message of the other side. It returns ErrGone if none can arrive
// any more.
func (l *Line) Receive(v any) error {
	if l.ahead == nil {
		return AsErrGone(l.in.Decode(v))
	}
	m, ok := <-l.ahead
	if !ok {
		return ErrGone
	}
	return json.Unmarshal(m, v)
}

// AsErrGone returns ErrGone for an error of a connection that the other side has closed, and err
// otherwise.
func AsErrGone(err error) error {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, io.ErrClosedPipe, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, end) {
			return ErrGone
		}
	}
	return err
}

// Follow reads ahead, so that the returned context ends with ErrGone when the other side is gone,
// also while this process works. Call it once. It reads until conn is closed.
func (l *Line) Follow(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	l.ahead, l.alive = make(chan json.RawMessage), ctx
	go func() {
		defer close(l.ahead)
		for {
			var m json.RawMessage
			if err := l.in.Decode(&m); err != nil {
				cancel(AsErrGone(err))
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

// Result returns the result of a process that has called Follow and got err: nil if the other side
// is gone, because then no process reads the result. A failed reply may detect that earlier than
// the reader.
func (l *Line) Result(err error) error {
	if errors.Is(context.Cause(l.alive), ErrGone) || errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// reply is the reply of a process: a value, or an error.
type reply struct {
	Value any
	Error string
}

// Reply replies with v, or with the text of err. It returns ErrGone if the other side is gone.
func (l *Line) Reply(v any, err error) error {
	if err != nil {
		return AsErrGone(l.out.Encode(reply{Error: err.Error()}))
	}
	return AsErrGone(l.out.Encode(reply{Value: v}))
}

// List contains processes in order.
type List []*Line

// Launch starts n processes; undo closes them. All waits for them end with ctx.
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

// hangUp closes all connections, which ends all waits on both sides.
func (c List) hangUp() {
	for _, l := range c {
		_ = l.conn.Close() // its process closes it again
	}
}

// Query sends a request to each process, and then reads the replies. After the first error it closes
// all connections, because other processes may wait for the failed one, and returns that error.
func Query[Value any](c List, request func(i int) any) ([]Value, error) {
	for i, l := range c {
		if err := l.out.Encode(request(i)); err != nil {
			c.hangUp()
			return nil, fmt.Errorf("process %d: %w", i, AsErrGone(err))
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
			if err := l.receiveReply(&values[i]); err != nil {
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

// receiveReply reads a reply.
func (l *Line) receiveReply(v any) error {
	r := reply{Value: v}
	if err := l.Receive(&r); err != nil {
		return err
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

// Go is the request to continue.
func Go(int) any { return struct{}{} }
