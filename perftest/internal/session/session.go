// Package session is the initiating side's view of a pair of processes: it opens
// layers on both ends, connects them and asks the target about its memory.
package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gucx/gucx/perftest/internal/layer"
	"github.com/gucx/gucx/perftest/internal/oob"
)

const (
	// callTimeout bounds one answer of the target. Opening a device and filling
	// the largest memory take less than a second.
	callTimeout = 20 * time.Second
	// byeTimeout bounds the polite end of a session.
	byeTimeout = time.Second
)

// Session is a target that answers. One goroutine at a time.
type Session struct {
	conn   *oob.Conn
	layers layer.Set
	open   map[string]layer.Conn
	ctx    context.Context // ends the waits of the layers
	pid    int
}

// New says hello over c, which the Session closes. The end of ctx also ends waits
// in layers that are opened later.
func New(ctx context.Context, c net.Conn, layers layer.Set) (*Session, error) {
	s := &Session{conn: oob.NewConn(c), layers: layers, open: map[string]layer.Conn{}, ctx: ctx}
	reply, err := s.call(ctx, oob.Request{Verb: oob.Hello})
	if err != nil {
		return nil, errors.Join(err, s.conn.Close())
	}
	s.pid = int(reply.Value)
	return s, nil
}

// PID is the process id of the target, on its host.
func (s *Session) PID() int { return s.pid }

func (s *Session) call(ctx context.Context, r oob.Request) (oob.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout,
		fmt.Errorf("no answer within %v", callTimeout))
	defer cancel()
	return s.conn.Call(ctx, r)
}

// Open opens the named layer on both sides, connects it and completes one
// operation of it, so that nothing is set up while the clock runs.
func (s *Session) Open(ctx context.Context, name string, p oob.Params) (_ layer.Conn, err error) {
	open, known := s.layers.Open[name]
	if !known {
		return nil, fmt.Errorf("unknown layer %q; there are %v", name, s.layers.Names)
	}
	c, err := open(layer.Config{Transport: p.Transport, Device: p.Device, Fabric: p.Fabric,
		MemLen: p.MemLen, Context: s.ctx})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s.open[name] = c
	if err := s.join(ctx, name, c, p); err != nil {
		return nil, fmt.Errorf("connect %s: %w", name, err)
	}
	return c, nil
}

// join opens the target's end and connects both.
func (s *Session) join(ctx context.Context, name string, c layer.Conn, p oob.Params) error {
	local, err := c.Address()
	if err != nil {
		return err
	}
	remote, err := s.call(ctx, oob.Request{Verb: oob.Open, Layer: name, Params: &p})
	if err != nil {
		return err
	}
	if _, err := s.call(ctx, oob.Request{Verb: oob.Connect, Layer: name, Address: local}); err != nil {
		return err
	}
	if err := c.Connect(remote.Address); err != nil {
		return err
	}
	return s.firstPut(ctx, name, c)
}

// firstPut writes one byte while the target drives its end: some layers connect
// at the first operation.
func (s *Session) firstPut(ctx context.Context, name string, c layer.Conn) error {
	op, err := c.Op(layer.Spec{Kind: layer.Put, Size: 1, Window: 1})
	if err != nil {
		return err
	}
	if _, err := s.call(ctx, oob.Request{Verb: oob.Drive, Layer: name}); err != nil {
		return err
	}
	if err := op.Post(); err != nil {
		return fmt.Errorf("first put: %w", err)
	}
	if err := op.Flush(); err != nil {
		return fmt.Errorf("flush of the first put: %w", err)
	}
	// Any request ends the driving.
	_, err = s.call(ctx, oob.Request{Verb: oob.Fill, Layer: name})
	return err
}

// Fill has the target write a pattern over the first n bytes of its memory.
func (s *Session) Fill(ctx context.Context, name string, seed uint64, n int) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Fill, Layer: name, Seed: seed, Len: n})
	return err
}

// Check has the target compare the first n bytes of its memory with a pattern.
func (s *Session) Check(ctx context.Context, name string, seed uint64, n int) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.Check, Layer: name, Seed: seed, Len: n})
	return err
}

// SetWord has the target store v in the first word of its memory.
func (s *Session) SetWord(ctx context.Context, name string, v uint64) error {
	_, err := s.call(ctx, oob.Request{Verb: oob.SetWord, Layer: name, Value: v})
	return err
}

// Word returns the first word of the target's memory.
func (s *Session) Word(ctx context.Context, name string) (uint64, error) {
	r, err := s.call(ctx, oob.Request{Verb: oob.Word, Layer: name})
	return r.Value, err
}

// Close closes every layer while the target drives its end, since some layers say
// good-bye, and ends the session. Idempotent.
func (s *Session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
	defer cancel()
	var errs []error
	for _, name := range s.layers.Names {
		c, ok := s.open[name]
		if !ok {
			continue
		}
		delete(s.open, name)
		// A target that is gone already needs no good-bye; closing must go on.
		_, _ = s.conn.Call(ctx, oob.Request{Verb: oob.Drive, Layer: name})
		errs = append(errs, c.Close())
	}
	_, _ = s.conn.Call(ctx, oob.Request{Verb: oob.Bye})
	return errors.Join(append(errs, s.conn.Close())...)
}
