package msgrate

import (
	"context"
	"slices"
	"time"

	"github.com/gucx/gucx/perftest/internal/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"

	"golang.org/x/sys/unix"
)

// Rig is where senders run: in real time, or in the virtual time of a model.
type Rig interface {
	// Device makes a device for one measurement, with its queues tuned.
	Device(queues mlx5.Config) (*verbs.Device, error)
	// Target opens where the messages go; nil if QPs are connected to themselves.
	Target() (Target, error)
	// Run does all steps of all senders and says how fast they were.
	Run(ctx context.Context, s *Senders) (Rates, error)
}

// Rates is what a run came to.
type Rates struct {
	Begin     time.Time     // of the first step; zero in virtual time
	PerThread []float64     // messages in a second of the rig's time
	Elapsed   time.Duration // from the first step of any thread to the last of all
	CPU       time.Duration // that the process used meanwhile; 0 in virtual time
	Total     float64       // messages of all threads in a second of Elapsed
}

// NewRates makes rates from when each thread began and ended.
func NewRates(messages []int64, begin, end []time.Duration) Rates {
	r := Rates{PerThread: make([]float64, len(messages))}
	first, last, sum := begin[0], end[0], int64(0)
	for t, n := range messages {
		r.PerThread[t] = perSecond(n, end[t]-begin[t])
		first, last = min(first, begin[t]), max(last, end[t])
		sum += n
	}
	r.Elapsed = last - first
	r.Total = perSecond(sum, r.Elapsed)
	return r
}

// perSecond treats a time below the clock's resolution as one nanosecond.
func perSecond(n int64, d time.Duration) float64 {
	return float64(n) / max(d, time.Nanosecond).Seconds()
}

// RealTime runs each sender on a goroutine of its own.
type RealTime struct {
	// Fabric of the software HCA. On loop, QPs are connected to themselves; on shm
	// the target is a device of this process, unless Remote opens another.
	Fabric softhca.Fabric
	Remote func() (Target, error)
}

// Device implements Rig.
func (r *RealTime) Device(queues mlx5.Config) (*verbs.Device, error) {
	return newDevice(r.Fabric, queues)
}

// dialTimeout is how long a peer may take to answer: threads that compete for few
// processors can keep it waiting.
const dialTimeout = 30 * time.Second

func newDevice(fabric softhca.Fabric, queues mlx5.Config) (*verbs.Device, error) {
	return softhca.NewDevice(softhca.Config{Fabric: fabric, Queues: queues, DialTimeout: dialTimeout})
}

// Target implements Rig.
func (r *RealTime) Target() (Target, error) {
	switch {
	case r.Fabric == softhca.FabricLoop:
		return nil, nil
	case r.Remote != nil:
		return r.Remote()
	}
	dev, err := r.Device(mlx5.Config{})
	if err != nil {
		return nil, err
	}
	return NewTarget(dev)
}

// Run implements Rig.
func (r *RealTime) Run(ctx context.Context, s *Senders) (Rates, error) {
	before := cpuTime()
	times, err := steps.Run(ctx, s.Threads)
	cpu := cpuTime() - before
	if err != nil {
		return Rates{}, err
	}
	messages := make([]int64, len(s.Threads))
	for t, th := range s.Threads {
		messages[t] = th.total
	}
	rates := NewRates(messages, times.Begin, times.End)
	rates.CPU = cpu
	rates.Begin = times.Zero.Add(slices.Min(times.Begin))
	return rates, nil
}

// cpuTime is what all threads of this process have used. Unlike the time that passes
// it does not depend on what else the machine does.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // it does not fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
