package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/perftest/internal/layer"
	"github.com/gucx/gucx/perftest/internal/oob"
)

// oneSided are the kinds with which a new connection is tried: the first that there
// is.
var oneSided = []layer.Kind{layer.Put, layer.Get, layer.FAdd}

// try completes an operation while the target drives its end, since some layers
// connect at the first one, and finds out whether the target is needed later. A
// transport without one-sided operations is tried by the warm-up of its tests.
func (s *Session) try(ctx context.Context, name string) error {
	c := s.open[name].conn
	for _, kind := range oneSided {
		spec := layer.Spec{Kind: kind, Size: 1, Window: 1}
		if kind.Atomic() {
			spec.Size = layer.WordLen
		}
		op, err := c.Op(spec)
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.first(ctx, name, op); err != nil {
			return fmt.Errorf("first %v: %w", kind, err)
		}
		s.open[name].needsTarget, err = s.needsTarget(ctx, name, op)
		return err
	}
	return nil
}

// first completes op while the target drives its end.
func (s *Session) first(ctx context.Context, name string, op layer.Op) error {
	if err := s.Drive(ctx, name); err != nil {
		return err
	}
	if err := once(op); err != nil {
		return err
	}
	return s.Rest(ctx)
}

func once(op layer.Op) error {
	if err := op.Post(); err != nil {
		return err
	}
	return op.Flush()
}

const (
	// aloneFor is how long the target leaves an operation alone that is to show
	// whether it needs the target: a hundred times what it takes, on a busy machine.
	aloneFor = 20 * time.Millisecond
	// aloneTries is how often a machine may be so busy that it takes longer.
	aloneTries = 3
)

// needsTarget reports whether op ends only once the target makes progress. An
// operation that has ended before the target began to needs no help.
func (s *Session) needsTarget(ctx context.Context, name string, op layer.Op) (bool, error) {
	if s.loopback {
		return false, nil
	}
	for range aloneTries {
		asked := time.Now()
		_, err := s.call(ctx, oob.Request{Verb: oob.Drive, Layer: name, Value: uint64(aloneFor)})
		if err != nil {
			return false, err
		}
		if err := once(op); err != nil {
			return false, err
		}
		alone := time.Since(asked) < aloneFor
		if err := s.Rest(ctx); err != nil {
			return false, err
		}
		if alone {
			return false, nil
		}
	}
	return true, nil
}
