package dgemm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/studies/msgrate"
	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Bench multiplies matrices on a rig. It implements msgrate.Measurer. It uses threads, plan,
// inlining and the locks of CQs of a configuration.
type Bench struct {
	Rig  msgrate.Rig
	N    int // rows and columns of the matrices
	Tile int // columns of a tile of A, and rows of one of B; divides N
	Rows int // rows of a tile of A and C; divides N; 0 means Tile
}

// maxN limits the time of the check of the result, which is serial, to about a second.
const maxN = 1024

// Check returns an error for invalid sizes.
func (b *Bench) Check() error {
	l := b.layout()
	if l.n < 1 || l.n > maxN || l.tile < 1 || l.rows < 1 || l.n%l.tile != 0 || l.n%l.rows != 0 {
		return fmt.Errorf("matrices of %d rows in tiles of %d x %d: want at most %d, and divisors of it", l.n, l.rows, l.tile, maxN)
	}
	return nil
}

func (b *Bench) layout() layout { return layout{n: b.N, rows: cmp.Or(b.Rows, b.Tile), tile: b.Tile} }

// depth is the maximum number of outstanding work requests of a QP, as in the message-rate
// benchmark of the study.
const depth = 64

// run is one multiplication.
type run struct {
	layout  layout
	set     *endpoint.Set
	target  msgrate.Target
	global  []byte // memory of the server, without a target
	threads []*thread
	undo    cleanup.Stack
}

// Measure implements msgrate.Measurer. It checks the product.
func (b *Bench) Measure(ctx context.Context, queues mlx5.Config, cfg msgrate.Config) (o msgrate.Outcome, err error) {
	if err := b.Check(); err != nil {
		return o, err
	}
	r := &run{layout: b.layout()}
	defer func() { err = errors.Join(err, r.undo.Run()) }()
	if err := r.open(b.Rig, queues, cfg); err != nil {
		return o, err
	}
	o.Config = cfg
	o.Resources, _ = r.set.Resources()
	var threads []steps.Stepper
	for _, t := range r.threads {
		threads = append(threads, t)
	}
	times, err := b.Rig.Run(ctx, threads)
	if err != nil {
		return o, err
	}
	o.Rates = r.rates(times)
	return o, r.verify()
}

func (r *run) rates(times steps.Times) msgrate.Rates {
	var messages []int64
	var gets, puts float64
	for _, t := range r.threads {
		messages = append(messages, t.gets.messages+t.puts.messages)
		gets += t.gets.rate()
		puts += t.puts.rate()
	}
	rates := msgrate.NewRates(messages, times)
	rates.Gets, rates.Puts = gets, puts
	return rates
}

func (r *run) open(rig msgrate.Rig, queues mlx5.Config, cfg msgrate.Config) (err error) {
	devs, err := rig.Devices(1, queues)
	if err != nil {
		return err
	}
	if r.target, err = rig.Target(); err != nil {
		return err
	}
	if r.target != nil {
		r.undo.Add(r.target.Close)
	}
	inline := cfg.Inline && r.layout.rowLen() <= steps.InlineLimit
	ends := endpoint.Config{Plan: cfg.Plan, LockCQ: cfg.LockCQ}
	ends.Cap.MaxSendWR = depth
	if inline {
		ends.Cap.MaxInline = r.layout.rowLen()
	}
	if r.set, err = endpoint.Open(devs[0], max(cfg.Threads, 1), ends); err != nil {
		return err
	}
	r.undo.Add(r.set.Close)
	if err := r.makeThreads(rig, inline, cfg.Atomics); err != nil {
		return err
	}
	if err := r.load(); err != nil {
		return err
	}
	return r.warm()
}

func (r *run) makeThreads(rig msgrate.Rig, inline, atomics bool) error {
	n := matrices * r.layout.matrixLen()
	if r.target == nil {
		r.global = make([]byte, n)
	}
	lanes := steps.NewLanes(r.set, depth, atomics)
	lanes.Meter(rig.Counter)
	self := make([]msgrate.Destination, len(r.set.Endpoints))
	for t, e := range r.set.Endpoints {
		th := &thread{layout: r.layout, every: len(r.set.Endpoints), tile: t, track: lanes.Tracks[t][0], poller: lanes.Pollers[t],
			inline: inline, now: rig.Now, acc: make([]float64, r.layout.rows*r.layout.tile)}
		for m := range th.mr {
			mr, err := r.register(e.PD, make([]byte, r.layout.tileLen(m)))
			if err != nil {
				return err
			}
			th.mr[m] = mr
		}
		if r.global != nil {
			mr, err := r.register(e.PD, r.global)
			if err != nil {
				return err
			}
			self[t] = msgrate.Destination{Addr: mr.Addr(), RKey: mr.RKey()}
		}
		r.threads = append(r.threads, th)
	}
	regions, err := msgrate.Connect(r.set, r.target, n, func(t int) msgrate.Destination { return self[t] })
	for t := range regions {
		r.threads[t].there = regions[t]
	}
	return err
}

func (r *run) register(pd *verbs.PD, mem []byte) (*verbs.MR, error) {
	mr, err := pd.RegMR(mem, rclink.AllAccess)
	if err == nil {
		r.undo.Add(mr.Close)
	}
	return mr, err
}

// load writes A and B to the server, through the queues of the first thread.
func (r *run) load() (err error) {
	mem := make([]byte, matrixC*r.layout.matrixLen())
	r.layout.fill(mem)
	th := r.threads[0]
	mr, err := r.set.Endpoints[0].PD.RegMR(mem, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	return th.complete(verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGList: []verbs.SGE{mr.SGE(0, len(mem))}})
}

// warm makes each thread get a tile, so that nothing is set up while the clock runs.
func (r *run) warm() error {
	for _, th := range r.threads {
		sge := th.mr[matrixA].SGE(0, r.layout.tileLen(matrixA))
		if err := th.complete(verbs.SendWR{Opcode: verbs.OpRDMARead, SGList: []verbs.SGE{sge}}); err != nil {
			return err
		}
	}
	return nil
}

// complete posts wr for the start of the server's memory and waits for it.
func (t *thread) complete(wr verbs.SendWR) error {
	wr.RemoteAddr, wr.RKey = t.there.Addr, t.there.RKey
	if _, err := t.track.Post(wr); err != nil {
		return err
	}
	for t.track.Outstanding() > 0 {
		n, err := t.poller.Poll()
		if err != nil {
			return err
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	return nil
}

// verify compares the memory of the server with the serial product.
func (r *run) verify() error {
	got := r.global
	if r.target != nil {
		var err error
		if got, err = r.target.Memory(); err != nil {
			return err
		}
	}
	l := r.layout
	if len(got) != matrices*l.matrixLen() {
		return fmt.Errorf("%w: the server has %d bytes, want %d", msgrate.ErrData, len(got), matrices*l.matrixLen())
	}
	for row := range l.n {
		for col := range l.n {
			if v, want := load(got[l.index(matrixC, row, col):]), l.product(row, col); v != want {
				return fmt.Errorf("%w: C[%d][%d] is %v, want %v", msgrate.ErrData, row, col, v, want)
			}
		}
	}
	return nil
}
