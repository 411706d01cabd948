// Package virtual runs the threads of benchmarks in the virtual time of a model.
package virtual

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Rig is a msgrate.Rig that runs all threads on one goroutine, on machines of a model. QPs are
// connected to themselves; the model simulates the acknowledgement of a peer. It runs one
// measurement at a time. The results depend only on its fields, and on the number of earlier
// measurements.
type Rig struct {
	// Params are the costs of the machine.
	Params timing.Params
	// Seed determines the start times of threads, and the jitter of Params. Each measurement of a
	// rig uses the next seed.
	Seed uint64

	model *timing.Model
}

// ConnectX4 returns a rig with the machine of the study.
func ConnectX4() *Rig { return &Rig{Params: timing.ConnectX4()} }

// Change sets parameters of the machine from a list of name=value, separated by commas; see
// timing.Params.Set. An empty list changes nothing.
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

// Devices implements msgrate.Rig: new machines, each with a NIC.
func (r *Rig) Devices(n int, queues mlx5.Config) (devs []*verbs.Device, err error) {
	r.Seed++
	if r.model, err = timing.New(r.Params); err != nil {
		return nil, err
	}
	for i := range n {
		cfg := softhca.Config{Timing: r.model, Queues: queues}
		if i > 0 {
			cfg.NIC = r.model.NewNIC()
		}
		dev, err := softhca.NewDevice(cfg)
		if err != nil {
			return nil, err
		}
		devs = append(devs, dev)
	}
	return devs, nil
}

// Loops implements msgrate.Rig.
func (r *Rig) Loops() bool { return true }

// Target implements msgrate.Rig.
func (r *Rig) Target() (msgrate.Target, error) { return nil, nil }

// Run implements msgrate.Rig. It ends early with the cause of ctx.
func (r *Rig) Run(ctx context.Context, threads []steps.Stepper) (times steps.Times, err error) {
	functions := make([]timing.Step, len(threads))
	for i, th := range threads {
		functions[i] = func() (done bool, err error) {
			if ctx.Err() != nil {
				return true, context.Cause(ctx)
			}
			more, err := th.Step()
			return !more, err
		}
	}
	ran, err := r.model.Run(r.Seed, functions)
	for _, t := range ran {
		times.Begin, times.End = append(times.Begin, duration(t.Begin)), append(times.End, duration(t.End))
	}
	return times, err
}

// Now implements msgrate.Rig.
func (r *Rig) Now() time.Duration { return duration(r.model.Now()) }

// Counter implements msgrate.Rig.
func (r *Rig) Counter() steps.Counter { return r.model.NewWord() }

// duration rounds down to a nanosecond; for rates of many messages the error is negligible.
func duration(t timing.Time) time.Duration { return time.Duration(t / timing.Nanosecond) }

// Stats returns the statistics of the machine since Devices.
func (r *Rig) Stats() timing.Stats { return r.model.Stats() }

// DeviceReads returns the number of memory reads of the NIC since Devices.
func (r *Rig) DeviceReads() uint64 { return r.model.Stats().Reads }
