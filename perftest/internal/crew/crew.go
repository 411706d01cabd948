// Package crew talks with the processes of one measurement: the same request to each,
// then the reply of each, in JSON.
package crew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gucx/gucx/internal/cleanup"
)

// Start starts a process and returns the connection to it. Closing the process closes
// the connection.
type Start func() (net.Conn, io.Closer, error)

// Line is one end of a connection. One goroutine at a time uses it.
type Line struct {
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// NewLine is the line over conn, which it does not own.
func NewLine(conn net.Conn) *Line {
	return &Line{conn, json.NewDecoder(conn), json.NewEncoder(conn)}
}

// Receive reads into v what the other end sends.
func (l *Line) Receive(v any) error { return l.in.Decode(v) }

// reply is what a process answers: a value, or why there is none.
type reply struct {
	Value any
	Error string
}

// Reply answers with v, or with the text of err.
func (l *Line) Reply(v any, err error) error {
	if err != nil {
		return l.out.Encode(reply{Error: err.Error()})
	}
	return l.out.Encode(reply{Value: v})
}

// Crew is processes in a row.
type Crew []*Line

// Muster starts n processes, which undo closes. The end of ctx ends all waits for them.
func Muster(ctx context.Context, n int, start Start, undo *cleanup.Stack) (Crew, error) {
	var c Crew
	for range n {
		conn, process, err := start()
		if err != nil {
			return nil, err
		}
		undo.Add(process.Close)
		c = append(c, NewLine(conn))
	}
	stop := context.AfterFunc(ctx, func() {
		for _, l := range c {
			_ = l.conn.Close()
		}
	})
	undo.Add(func() error {
		stop()
		return nil
	})
	return c, nil
}

// Ask sends each process its request before it waits for the first reply. The first error
// in the order of the processes is returned.
func Ask[Value any](c Crew, request func(i int) any) ([]Value, error) {
	for i, l := range c {
		if err := l.out.Encode(request(i)); err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	values := make([]Value, len(c))
	for i, l := range c {
		r := reply{Value: &values[i]}
		err := l.Receive(&r)
		if err == nil && r.Error != "" {
			err = errors.New(r.Error)
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
	}
	return values, nil
}

// Go is the request that says no more than to go on.
func Go(int) any { return struct{}{} }
