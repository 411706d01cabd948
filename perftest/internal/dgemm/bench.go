package dgemm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/msgrate"
	"github.com/gucx/gucx/perftest/internal/rclink"
	"github.com/gucx/gucx/perftest/internal/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// Bench multiplies on a rig, in real time. It implements msgrate.Measurer: of a
// configuration it takes threads, plan and inlining, and rates are gets and puts.
type Bench struct {
	Rig  *msgrate.RealTime
	N    int // rows and columns of the matrices
	Tile int // of a tile; divides N
}

// maxN keeps the check of the result, which is serial, to about a second.
const maxN = 1024

// Check says what is wrong with the sizes.
func (b *Bench) Check() error {
	if b.N < 1 || b.N > maxN || b.Tile < 1 || b.N%b.Tile != 0 {
		return fmt.Errorf("matrices of %d rows in tiles of %d: want at most %d, and a divisor of it", b.N, b.Tile, maxN)
	}
	return nil
}

// outstanding is how many work requests a thread has posted at most.
const outstanding = 2

// inlineLimit is up to which length tiles are put inline, where that is asked for: what
// mlx5 copies to a BlueFlame register beside the header.
const inlineLimit = 200

// run is one multiplication.
type run struct {
	layout  layout
	set     *endpoint.Set
	target  msgrate.Target
	global  []byte // the server's memory, without a target
	threads []*thread
	undo    cleanup.Stack
}

// Measure implements msgrate.Measurer. It checks the product.
func (b *Bench) Measure(ctx context.Context, queues mlx5.Config, cfg msgrate.Config) (o msgrate.Outcome, err error) {
	if err := b.Check(); err != nil {
		return o, err
	}
	r := &run{layout: layout{b.N, b.Tile}}
	defer func() { err = errors.Join(err, r.undo.Run()) }()
	if err := r.open(b.Rig, queues, cfg); err != nil {
		return o, err
	}
	o.Config = cfg
	o.Resources, _ = r.set.Resources()
	times, err := steps.Run(ctx, r.threads)
	if err != nil {
		return o, err
	}
	var messages []int64
	for _, t := range r.threads {
		messages = append(messages, t.gets+t.puts)
	}
	o.Rates = msgrate.NewRates(messages, times.Begin, times.End)
	o.Rates.Begin = times.Zero.Add(slices.Min(times.Begin))
	return o, r.verify()
}

func (r *run) open(rig *msgrate.RealTime, queues mlx5.Config, cfg msgrate.Config) (err error) {
	dev, err := rig.Device(queues)
	if err != nil {
		return err
	}
	if r.target, err = rig.Target(); err != nil {
		return err
	}
	if r.target != nil {
		r.undo.Add(r.target.Close)
	}
	threads := max(cfg.Threads, 1)
	inline := cfg.Inline && r.layout.tileLen() <= inlineLimit
	ends := endpoint.Config{Plan: cfg.Plan, LockCQ: cfg.LockCQ, CQDepth: outstanding}
	ends.Cap.MaxSendWR = outstanding * max(cfg.Plan.QP, 1)
	if inline {
		ends.Cap.MaxInline = r.layout.tileLen()
	}
	if r.set, err = endpoint.Open(dev, threads, ends); err != nil {
		return err
	}
	r.undo.Add(r.set.Close)
	if err := r.makeThreads(inline); err != nil {
		return err
	}
	if err := r.load(); err != nil {
		return err
	}
	return r.warm()
}

func (r *run) makeThreads(inline bool) error {
	n := matrices * r.layout.matrixLen()
	if r.target == nil {
		r.global = make([]byte, n)
	}
	self := make([]msgrate.Destination, len(r.set.Endpoints))
	for t, e := range r.set.Endpoints {
		th := &thread{layout: r.layout, id: t, every: len(r.set.Endpoints), tile: t, qp: e.QPs[0], inline: inline,
			credit: &steps.Credit{}, acc: make([]float64, r.layout.tile*r.layout.tile)}
		th.poller.CQ = e.CQ
		for m := range th.mr {
			mr, err := r.register(e.PD, make([]byte, r.layout.tileLen()))
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
	land, err := msgrate.Connect(r.set, r.target, n, func(t int) msgrate.Destination { return self[t] })
	if err != nil {
		return err
	}
	var credits []*steps.Credit
	for t, th := range r.threads {
		th.there = land[t]
		credits = append(credits, th.credit)
	}
	for _, th := range r.threads {
		th.poller.Credits = credits
	}
	return nil
}

func (r *run) register(pd *verbs.PD, mem []byte) (*verbs.MR, error) {
	mr, err := pd.RegMR(mem, rclink.AllAccess)
	if err == nil {
		r.undo.Add(mr.Close)
	}
	return mr, err
}

// load writes A and B to the server, by the first thread's queues.
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

// warm has each thread get a tile, so that nothing is set up while the clock runs.
func (r *run) warm() error {
	for _, th := range r.threads {
		sge := th.mr[matrixA].SGE(0, r.layout.tileLen())
		if err := th.complete(verbs.SendWR{Opcode: verbs.OpRDMARead, SGList: []verbs.SGE{sge}}); err != nil {
			return err
		}
	}
	return nil
}

// complete posts wr for the start of the server's memory and waits for it.
func (t *thread) complete(wr verbs.SendWR) error {
	if err := t.post(wr, 0); err != nil {
		return err
	}
	for t.credit.Outstanding() > 0 {
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

// verify compares what is on the server with the serial product.
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
