package msgrate

import (
	"context"
	"slices"
	"time"

	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// Rig runs threads: in real time, or in the virtual time of a model.
type Rig interface {
	// Devices creates the devices of n nodes for one measurement, with configured queues.
	Devices(n int, queues mlx5.Config) ([]*verbs.Device, error)
	// Loops reports that QPs reach only their own context.
	Loops() bool
	// Target opens the destination of the messages; nil if QPs are connected to themselves.
	Target() (Target, error)
	// Run runs all steps of all threads and returns their times.
	Run(ctx context.Context, threads []steps.Stepper) (steps.Times, error)
	// Now returns the time of the rig since an arbitrary moment.
	Now() time.Duration
	// Counter returns a counter for threads that share it; nil in real time.
	Counter() steps.Counter
}

// Rates is the result of a run.
type Rates struct {
	Begin     time.Time     // of the first step; zero in virtual time
	PerThread []float64     // messages per second of the rig's time
	Elapsed   time.Duration // from the first step of any thread to the last of all
	CPU       time.Duration // CPU time of the process; 0 in virtual time
	Total     float64       // messages of all threads per second of Elapsed
	Messages  int64         // of all threads
	// Gets and Puts are the operations of an application's threads per second of the time that each
	// thread spends on gets, or on puts, added over all threads; 0 if they are not separate.
	Gets, Puts float64
}

// NewRates computes rates from the number of messages of each thread, and from its times.
func NewRates(messages []int64, times steps.Times) Rates {
	r := Rates{PerThread: make([]float64, len(messages)), CPU: times.CPU}
	for t, n := range messages {
		r.PerThread[t] = perSecond(n, times.End[t]-times.Begin[t])
		r.Messages += n
	}
	first := slices.Min(times.Begin)
	r.Elapsed = slices.Max(times.End) - first
	r.Total = perSecond(r.Messages, r.Elapsed)
	if !times.Zero.IsZero() {
		r.Begin = times.Zero.Add(first)
	}
	return r
}

// perSecond treats a time below the resolution of the clock as one nanosecond.
func perSecond(n int64, d time.Duration) float64 {
	return float64(n) / max(d, time.Nanosecond).Seconds()
}

// RealTime runs each sender on a goroutine of its own.
type RealTime struct {
	// Fabric is the fabric of the software HCA. On loop, QPs are connected to themselves; on shm
	// the target is a device of this process, unless Remote opens another.
	Fabric softhca.Fabric
	Remote func() (Target, error)
}

// Devices implements Rig: the nodes share one device.
func (r *RealTime) Devices(n int, queues mlx5.Config) ([]*verbs.Device, error) {
	dev, err := newDevice(r.Fabric, queues)
	return slices.Repeat([]*verbs.Device{dev}, n), err
}

// Loops implements Rig.
func (r *RealTime) Loops() bool { return r.Fabric == softhca.FabricLoop }

// dialTimeout is the maximum time for the reply of a peer: it may be slow if threads compete for
// few CPUs.
const dialTimeout = 30 * time.Second

func newDevice(fabric softhca.Fabric, queues mlx5.Config) (*verbs.Device, error) {
	return softhca.NewDevice(softhca.Config{Fabric: fabric, Queues: queues, DialTimeout: dialTimeout})
}

// Target implements Rig.
func (r *RealTime) Target() (Target, error) {
	switch {
	case r.Loops():
		return nil, nil
	case r.Remote != nil:
		return r.Remote()
	}
	dev, err := newDevice(r.Fabric, mlx5.Config{})
	if err != nil {
		return nil, err
	}
	return NewTarget(dev)
}

// Run implements Rig.
func (r *RealTime) Run(ctx context.Context, threads []steps.Stepper) (steps.Times, error) {
	return steps.Run(ctx, threads)
}

// zero is the origin of the time of rigs.
var zero = time.Now()

// Now implements Rig.
func (r *RealTime) Now() time.Duration { return time.Since(zero) }

// Counter implements Rig.
func (r *RealTime) Counter() steps.Counter { return nil }
