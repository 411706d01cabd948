package msgrate

import (
	"context"
	"errors"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Outcome is the measurement of one configuration.
type Outcome struct {
	Config    Config // with defaults applied
	Rates     Rates
	Resources verbs.Resources // of the senders
	Counts    Counts          // of the run
}

// Measurer measures one configuration.
type Measurer interface {
	Measure(ctx context.Context, queues mlx5.Config, cfg Config) (Outcome, error)
}

// On measures on a rig in this process.
type On struct{ Rig Rig }

// Measure implements Measurer.
func (o On) Measure(ctx context.Context, queues mlx5.Config, cfg Config) (Outcome, error) {
	return Measure(ctx, o.Rig, queues, cfg)
}

// Measure opens senders on the rig, runs them for a part of the messages as warm-up and then for
// all, and verifies the received data.
func Measure(ctx context.Context, rig Rig, queues mlx5.Config, cfg Config) (o Outcome, err error) {
	p, err := Prepare(ctx, rig, queues, cfg)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.Run(ctx)
}

// Prepared contains senders after the warm-up.
type Prepared struct {
	rig     Rig
	senders *Senders
	undo    cleanup.Stack
}

// warmupShare is the part of the messages that is sent before the measurement.
const warmupShare = 10

// Prepare opens senders on the rig and warms them up.
func Prepare(ctx context.Context, rig Rig, queues mlx5.Config, cfg Config) (_ *Prepared, err error) {
	p := &Prepared{rig: rig}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.undo.Run())
		}
	}()
	devs, err := rig.Devices(1, queues)
	if err != nil {
		return nil, err
	}
	target, err := rig.Target()
	if err != nil {
		return nil, err
	}
	if target != nil {
		p.undo.Add(target.Close)
	}
	if p.senders, err = Open(devs[0], target, cfg); err != nil {
		return nil, err
	}
	p.undo.Add(p.senders.Close)
	_, err = p.round(ctx, p.senders.Config.Messages/warmupShare)
	return p, err
}

// Run measures all messages.
func (p *Prepared) Run(ctx context.Context) (Outcome, error) {
	return p.round(ctx, p.senders.Config.Messages)
}

// round sends n messages.
func (p *Prepared) round(ctx context.Context, n int) (o Outcome, err error) {
	s := p.senders
	o.Config = s.Config
	o.Resources, _ = s.Resources()
	before, _ := s.Counts()
	before.Reads = deviceReads(p.rig)
	s.Restart(n)
	s.Meter(p.rig.Counter)
	times, err := p.rig.Run(ctx, s.Steppers())
	if err != nil {
		return o, err
	}
	o.Rates = NewRates(s.Messages(), times)
	after, _ := s.Counts()
	after.Reads = deviceReads(p.rig)
	o.Counts = after.since(before)
	return o, s.Verify()
}

// deviceReads returns the number of memory reads of the device of a rig, if the rig counts them;
// else 0.
func deviceReads(rig Rig) uint64 {
	if r, ok := rig.(interface{ DeviceReads() uint64 }); ok {
		return r.DeviceReads()
	}
	return 0
}

// Close closes the senders and their target.
func (p *Prepared) Close() error { return p.undo.Run() }
