package threads

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/ucp"
)

// MaxThreads is the maximum number of goroutines of a process: the number of the lane is the lowest byte of a message.
const MaxThreads = 256

// Where selects the transport and device.
type Where struct {
	Transport string
	Device    string // empty for the first
	Fabric    string // of the software HCA
}

// Open opens a context restricted to that transport.
type Open func(Where) (*ucp.Context, error)

// job is the work of a process.
type job struct {
	Where   Where
	Mode    Mode
	Threads int
	Memory  int // of each lane and direction, in bytes
}

// Part is a number of windows of one test.
type Part struct {
	Test    Test
	Size    int
	Window  int // operations of a window, as selected
	Warm    int // untimed windows
	Windows int // timed windows
	Seed    uint64
}

// contact is the address of a process: its workers, and the memory of each lane.
type contact struct {
	Workers [][]byte
	Keys    [][]byte
}

// node is a process of a measurement.
type node struct {
	job     job
	ctx     *ucp.Context
	workers []worker
	lanes   []*lane
	eps     []*ucp.EP // by worker
	undo    cleanup.Stack
}

// openNode opens workers, and memory for each lane.
func openNode(j job, open Open) (_ *node, err error) {
	n := &node{job: j}
	defer func() {
		if err != nil {
			_ = n.undo.Run()
		}
	}()
	if n.ctx, err = open(j.Where); err != nil {
		return nil, err
	}
	n.undo.Add(n.ctx.Close)
	mems := make([]*ucp.Mem, j.Threads) // closed after the workers, whose operations may use it
	for i := range mems {
		if mems[i], err = n.ctx.MemAlloc(2 * j.Memory); err != nil {
			return nil, err
		}
		n.undo.Add(mems[i].Close)
	}
	for range j.Mode.workers(j.Threads) {
		w, err := n.ctx.NewWorker(ucp.WorkerConfig{})
		if err != nil {
			return nil, err
		}
		n.workers = append(n.workers, j.Mode.share(w))
		n.undo.Add(n.workers[len(n.workers)-1].Close)
	}
	for i, m := range mems {
		l := newLane(i, n.workers[n.of(i)], m)
		l.worker.Do(l.handle)
		n.lanes = append(n.lanes, l)
	}
	return n, nil
}

// of returns the worker of a lane.
func (n *node) of(lane int) int {
	if len(n.workers) == 1 {
		return 0
	}
	return lane
}

// contact returns the address of the node.
func (n *node) contact() (c contact) {
	for _, w := range n.workers {
		w.Do(func(w *ucp.Worker) { c.Workers = append(c.Workers, w.Address()) })
	}
	for _, l := range n.lanes {
		c.Keys = append(c.Keys, l.mem.Pack())
	}
	return c
}

// connect creates endpoints to a node of the same job.
func (n *node) connect(c contact) (err error) {
	if len(c.Workers) != len(n.workers) || len(c.Keys) != len(n.lanes) {
		return fmt.Errorf("a process with %d workers and %d threads", len(c.Workers), len(c.Keys))
	}
	for i, w := range n.workers {
		var ep *ucp.EP
		w.Do(func(w *ucp.Worker) { ep, err = w.NewEP(c.Workers[i], ucp.EPConfig{}) })
		if err != nil {
			return err
		}
		n.eps = append(n.eps, ep)
	}
	for i, l := range n.lanes {
		l.ep = n.eps[n.of(i)]
		l.worker.Do(func(*ucp.Worker) { l.key, err = l.ep.Unpack(c.Keys[i]) })
		if err != nil {
			return err
		}
	}
	return nil
}

// begin prepares all lanes.
func (n *node) begin(p Part, initiates bool) error {
	if p.Size < 1 || p.Window < 1 || p.Warm < 0 || p.Windows < 0 || p.Test.memory(p.Window, p.Size) > n.job.Memory {
		return fmt.Errorf("a part of %d bytes, windows of %d", p.Size, p.Window)
	}
	for _, l := range n.lanes {
		l.worker.Do(func(*ucp.Worker) { l.begin(p, initiates) })
	}
	return nil
}

// finish returns the first error of the data of a part.
func (n *node) finish(initiates bool) (err error) {
	for _, l := range n.lanes {
		l.worker.Do(func(*ucp.Worker) { err = firstOf(err, l.finish(initiates)) })
	}
	return err
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// run runs a part as the initiator. It returns the time of each lane after all have warmed up and ready has returned,
// and the total time. ctx is that of all lanes: the first error ends the others.
func (n *node) run(ctx context.Context, p Part, ready func() error) (t times, err error) {
	t.Each = make([]time.Duration, len(n.lanes))
	begin := make(chan struct{})
	var warm sync.WaitGroup
	warm.Add(len(n.lanes))
	done := inParallel(ctx, len(n.lanes), func(ctx context.Context, i int) error {
		l := n.lanes[i]
		step := p.Test.initiator(l)
		err := steps(ctx, step, 0, p.Warm)
		warm.Done()
		if err != nil {
			return err
		}
		<-begin
		start := time.Now()
		err = steps(ctx, step, p.Warm, p.Warm+p.Windows)
		t.Each[i] = time.Since(start)
		return err
	})
	warm.Wait()
	failed := ready()
	t.Begin = monotonic()
	close(begin)
	err = firstOf(failed, done())
	t.End = monotonic()
	t.All = t.End - t.Begin
	return t, err
}

// monotonic is a clock that is the same for all processes of a host.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // never fails
	return time.Duration(now.Nano())
}

// steps runs windows from..to-1.
func steps(ctx context.Context, do step, from, to int) error {
	for k := from; k < to; k++ {
		if err := do(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// serve does the target's work in a part. done waits until that is complete; workers make progress until ctx ends, and
// end waits for that.
func (n *node) serve(ctx context.Context, p Part) (done func(), end func() error) {
	var steady sync.WaitGroup
	if p.Test.oneSided() {
		return steady.Wait, n.idle(ctx)
	}
	steady.Add(len(n.lanes))
	end = inParallel(ctx, len(n.lanes), func(ctx context.Context, i int) error {
		err := steps(ctx, p.Test.target(n.lanes[i]), 0, p.Warm+p.Windows)
		steady.Done()
		if err == nil {
			_ = n.lanes[i].worker.Until(ctx, never) // ends by ctx
		}
		return err
	})
	return steady.Wait, end
}

// idle makes progress until ctx ends, because sent data may still have to leave; the returned function waits for that.
func (n *node) idle(ctx context.Context) (end func() error) {
	return inParallel(ctx, len(n.workers), func(ctx context.Context, i int) error {
		_ = n.workers[i].Serve(ctx) // ends by ctx
		return nil
	})
}

func never() bool { return false }

// times are the times of one part.
type times struct {
	All        time.Duration
	Each       []time.Duration
	Begin, End time.Duration // of All, by monotonic
}
