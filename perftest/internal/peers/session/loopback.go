package session

import (
	"context"
	"fmt"
	"time"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
	"github.com/gucx/gucx/perftest/internal/peers/target"
)

// NewLoopback returns a session without a target process: every layer is connected to itself. It is
// for transports that connect only within a worker.
func NewLoopback(ctx context.Context, layers layer.Set) *Session {
	ctx, cancel := context.WithCancel(ctx)
	s := &Session{layers: layers, open: map[string]*side{}, ctx: ctx, release: cancel, interrupt: layer.NewInterrupt(ctx), loopback: true}
	s.peer = loopback{s}
	return s
}

// loopback is the caller for a target that is the initiator itself.
type loopback struct{ s *Session }

// Call implements caller. Requests that prepare or drive a target have no effect.
func (l loopback) Call(ctx context.Context, r oob.Request) (oob.Reply, error) {
	if ctx.Err() != nil {
		return oob.Reply{}, context.Cause(ctx)
	}
	switch r.Verb {
	case oob.Connect, oob.Prepare, oob.Drive, oob.Rest, oob.Bye:
		return oob.Reply{}, nil
	}
	e, ok := l.s.open[r.Layer]
	if !ok {
		return oob.Reply{}, fmt.Errorf("layer %q is not open", r.Layer)
	}
	if r.Verb == oob.Open {
		addr, err := e.conn.Address()
		return oob.Reply{Address: addr}, err
	}
	reply, err := target.Memory(e.conn.Memory(), r)
	if err != nil {
		return reply, &oob.RemoteError{Verb: r.Verb, Layer: r.Layer, Text: err.Error()}
	}
	return reply, nil
}

// CallWithin implements caller. A loopback has no target with a state of its own.
func (l loopback) CallWithin(ctx context.Context, r oob.Request, _ time.Duration) (oob.Reply, error) {
	return oob.Reply{}, nil
}

// Close implements caller.
func (l loopback) Close() error { return nil }
