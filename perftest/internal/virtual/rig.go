// Package virtual runs message-rate senders in the virtual time of a model.
package virtual

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gucx/gucx/perftest/internal/msgrate"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/timing"
)

// Rig is a msgrate.Rig: all senders on one goroutine, on a machine that is a model.
// QPs are connected to themselves; the model has the acknowledgement come from a peer.
// It serves one measurement at a time. The results depend on its fields only, and on
// how many measurements came before.
type Rig struct {
	// Params are the costs of the machine.
	Params timing.Params
	// Seed decides when threads start. Each measurement of a rig uses another.
	Seed uint64

	model *timing.Model
}

// ConnectX4 is a rig on the machine of the study.
func ConnectX4() *Rig { return &Rig{Params: timing.ConnectX4()} }

// Change sets parameters of the machine by a list of name=value, separated by commas;
// see timing.Params.Set. An empty list changes nothing.
func (r *Rig) Change(list string) error {
	if list == "" {
		return nil
	}
	p := r.Params
	for item := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			return fmt.Errorf("parameter %q: want name=value", item)
		}
		if err := p.Set(name, value); err != nil {
			return err
		}
	}
	if _, err := timing.New(p); err != nil {
		return err
	}
	r.Params = p
	return nil
}

// Device implements msgrate.Rig: a new machine.
func (r *Rig) Device(queues mlx5.Config) (_ *verbs.Device, err error) {
	r.Seed++
	if r.model, err = timing.New(r.Params); err != nil {
		return nil, err
	}
	return softhca.NewDevice(softhca.Config{Timing: r.model, Queues: queues})
}

// Target implements msgrate.Rig.
func (r *Rig) Target() (msgrate.Target, error) { return nil, nil }

// Run implements msgrate.Rig. It ends early with the cause of ctx.
func (r *Rig) Run(ctx context.Context, s *msgrate.Senders) (msgrate.Rates, error) {
	s.Meter(func() msgrate.Counter { return r.model.NewWord() })
	threads := make([]timing.Step, len(s.Threads))
	for i, th := range s.Threads {
		threads[i] = func() (done bool, err error) {
			if ctx.Err() != nil {
				return true, context.Cause(ctx)
			}
			more, err := th.Step()
			return !more, err
		}
	}
	ran, err := r.model.Run(r.Seed, threads)
	if err != nil {
		return msgrate.Rates{}, err
	}
	n := len(ran)
	messages, begin, end := make([]int64, n), make([]time.Duration, n), make([]time.Duration, n)
	for i, t := range ran {
		messages[i] = s.Messages() / int64(n) // the same for all
		begin[i], end[i] = nanoseconds(t.Begin), nanoseconds(t.End)
	}
	return msgrate.NewRates(messages, begin, end), nil
}

// nanoseconds rounds down, which rates of many messages do not notice.
func nanoseconds(t timing.Time) time.Duration { return time.Duration(t / timing.Nanosecond) }

// Stats is what has happened on the machine since Device.
func (r *Rig) Stats() timing.Stats { return r.model.Stats() }
