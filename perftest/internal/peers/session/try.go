package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/peers/oob"
)

// oneSided are the operations with which a new connection is tried: the first one that is
// supported.
var oneSided = []layer.Kind{layer.Put, layer.Get, layer.FAdd}

// try completes one operation while the target drives its side, because some layers connect at the
// first operation. It then finds out whether later operations need the target. A transport without
// one-sided operations is tried by the warm-up of its tests.
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

// first completes op while the target drives its side.
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

// aloneFor is the time in which the target makes no progress, for an operation that shows whether
// it needs the target: a thousand times the time of an operation, and more, because on a busy
// machine the initiator may lose its CPU meanwhile.
var aloneFor = [...]time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond}

// needsTarget reports whether op completes only if the target makes progress. An operation that has
// completed before the target started does not need it: either the clock of this side or the reply
// of the target shows that.
func (s *Session) needsTarget(ctx context.Context, name string, op layer.Op) (bool, error) {
	if s.loopback {
		return false, nil
	}
	for _, alone := range aloneFor {
		start := time.Now()
		_, err := s.call(ctx, oob.Request{Verb: oob.Drive, Layer: name, Value: uint64(alone)})
		if err != nil {
			return false, err
		}
		if err := once(op); err != nil {
			return false, err
		}
		took := time.Since(start)
		r, err := s.call(ctx, oob.Request{Verb: oob.Rest})
		if err != nil {
			return false, err
		}
		if took < alone || r.Value == 0 {
			return false, nil
		}
	}
	return true, nil
}
