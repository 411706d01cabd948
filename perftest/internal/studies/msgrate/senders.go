package msgrate

import (
	"errors"
	"fmt"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/perftest/internal/measure/pattern"
	"github.com/gucx/gucx/perftest/internal/studies/rclink"
	"github.com/gucx/gucx/perftest/internal/studies/steps"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/endpoint"
)

// Senders are the threads of one process, connected and ready to run.
type Senders struct {
	Threads []*Sender
	Config  Config // with defaults applied

	set    *endpoint.Set
	target Target // nil: the QPs are connected to themselves
	memory memory
	mrs    []*verbs.MR // by thread
	round  uint64
	undo   cleanup.Stack
}

// Open creates the objects of cfg on dev and connects them with target, which the Senders do not
// own. Without a target each QP is connected to itself and writes to memory of this process; that
// needs no additional objects.
func Open(dev *verbs.Device, target Target, cfg Config) (_ *Senders, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Senders{Config: cfg, target: target, memory: layout(cfg)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.undo.Run())
		}
	}()
	if s.set, err = endpoint.Open(dev, cfg.Threads, cfg.endpoints()); err != nil {
		return nil, err
	}
	s.undo.Add(s.set.Close)
	if err = s.register(); err != nil {
		return nil, err
	}
	regions, err := s.connect()
	if err != nil {
		return nil, err
	}
	s.makeThreads(regions)
	s.Restart(cfg.Messages)
	return s, nil
}

// register registers the memory for each group of threads that share an MR.
func (s *Senders) register() error {
	for t, e := range s.set.Endpoints {
		if t%s.Config.MR != 0 {
			s.mrs = append(s.mrs, s.mrs[t-1])
			continue
		}
		mr, err := e.PD.RegMR(s.memory.all, rclink.AllAccess)
		if err != nil {
			return err
		}
		s.undo.Add(mr.Close)
		s.mrs = append(s.mrs, mr)
	}
	return nil
}

// connect connects every QP and returns the destination of each thread.
func (s *Senders) connect() ([]Destination, error) {
	regions, err := Connect(s.set, s.target, s.memory.landingLen(), func(t int) Destination {
		return Destination{s.mrs[t].Addr() + uint64(s.memory.landing), s.mrs[t].RKey()}
	})
	for t := range regions {
		regions[t].Addr += uint64(s.memory.slot(t))
	}
	return regions, err
}

func (s *Senders) makeThreads(regions []Destination) {
	cfg := s.Config
	free := map[int]*steps.Shared{} // by QP number
	for t, e := range s.set.Endpoints {
		n := cfg.Depth / cfg.Unsignaled
		th := &Sender{
			Thread: t, qp: e.QPs[0], cq: e.CQ, depth: int64(cfg.Depth), unit: int64(cfg.window()), each: int64(cfg.Unsignaled),
			calls: cfg.window() / cfg.Postlist, sharedCQ: cfg.Atomics || e.SharedBy.CQUsers > 1, wc: make([]verbs.WC, n),
		}
		if cfg.Atomics || e.SharedBy.QPUsers > 1 {
			if free[e.SharedBy.QP] == nil {
				free[e.SharedBy.QP] = &steps.Shared{}
				free[e.SharedBy.QP].Set(int64(cfg.Depth))
			}
			th.free = free[e.SharedBy.QP]
		}
		th.list = s.workRequests(t, regions[t], false)
		th.last = s.workRequests(t, regions[t], true)
		s.Threads = append(s.Threads, th)
	}
	for _, th := range s.Threads {
		th.others = s.Threads
	}
}

// workRequests returns a list for one call. The last list of a window ends with a signaled work
// request, whatever Unsignaled is.
func (s *Senders) workRequests(t int, to Destination, last bool) []verbs.SendWR {
	cfg := s.Config
	list := make([]verbs.SendWR, cfg.Postlist)
	for i := range list {
		wr := &list[i]
		*wr = verbs.SendWR{ID: uint64(t), Opcode: verbs.OpRDMAWrite, RemoteAddr: to.Addr, RKey: to.RKey}
		off := s.memory.payload(t)
		if cfg.Inline {
			wr.Flags, wr.Inline = verbs.SendInline, s.memory.all[off:off+cfg.Size]
		} else {
			wr.SGList = []verbs.SGE{s.mrs[t].SGE(off, cfg.Size)}
		}
		if (i+1)%cfg.Unsignaled == 0 || last && i == len(list)-1 {
			wr.Flags |= verbs.SendSignaled
		}
	}
	return list
}

// Restart starts again with n messages for each thread, rounded up to windows, and another payload.
// All steps must have returned.
func (s *Senders) Restart(n int) {
	unit := s.Config.window()
	n = (n + unit - 1) / unit * unit
	s.round++
	s.memory.fill(s.round)
	for _, t := range s.Threads {
		t.restart(int64(n))
	}
}

// Messages returns the number of messages of each thread.
func (s *Senders) Messages() (n []int64) {
	for _, t := range s.Threads {
		n = append(n, t.total)
	}
	return n
}

// Steppers returns the threads.
func (s *Senders) Steppers() (list []steps.Stepper) {
	for _, t := range s.Threads {
		list = append(list, t)
	}
	return list
}

// Meter replaces each counter that threads share by one that newCounter returns: the completions of
// threads with a common CQ, and the free places of a QP. No thread may be in a step.
func (s *Senders) Meter(make func() steps.Counter) {
	metered := map[*steps.Shared]bool{}
	for _, t := range s.Threads {
		if t.sharedCQ {
			t.meter = make()
		}
		if t.free != nil && !metered[t.free] {
			metered[t.free] = true
			t.free.Meter(make())
		}
	}
}

// ErrData is the error if a message has wrong data.
var ErrData = errors.New("data arrived wrong")

// Verify checks the data received since Restart: the payload of each thread in its slot, and
// unchanged bytes around it.
func (s *Senders) Verify() error {
	got := s.memory.all[s.memory.landing:]
	if s.target != nil {
		var err error
		if got, err = s.target.Memory(); err != nil {
			return err
		}
	}
	want := make([]byte, s.memory.landingLen())
	for t := range s.Threads {
		copy(want[s.memory.slot(t):], s.memory.all[s.memory.payload(t):][:s.Config.Size])
	}
	if len(got) != len(want) {
		return fmt.Errorf("%w: the target has %d bytes, want %d", ErrData, len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%w: %w", ErrData, &pattern.Mismatch{Offset: i, Got: got[i], Want: want[i], Len: len(want)})
		}
	}
	return nil
}

// Resources returns the resources of the senders.
func (s *Senders) Resources() (verbs.Resources, bool) { return s.set.Resources() }

// Counts are the doorbells and completions of the senders since Open.
type Counts struct {
	verbs.SendCounts
	CQEs  uint64
	Reads uint64 // reads of memory by the device; 0 in real time
}

func (c *Counts) add(o Counts) {
	c.WQEs += o.WQEs
	c.Doorbells += o.Doorbells
	c.BlueFlames += o.BlueFlames
	c.CQEs += o.CQEs
	c.Reads += o.Reads
}

// since returns the difference of c and an earlier value.
func (c Counts) since(before Counts) Counts {
	c.WQEs -= before.WQEs
	c.Doorbells -= before.Doorbells
	c.BlueFlames -= before.BlueFlames
	c.CQEs -= before.CQEs
	c.Reads -= before.Reads
	return c
}

// Counts returns the sums over QPs and CQs; false if the provider does not count. No sender may be
// in a step.
func (s *Senders) Counts() (sum Counts, ok bool) {
	seen := map[*verbs.QP]bool{}
	for _, t := range s.Threads {
		sum.CQEs += t.cqes
		if seen[t.qp] {
			continue
		}
		seen[t.qp] = true
		c, ok := t.qp.SendCounts()
		if !ok {
			return sum, false
		}
		sum.add(Counts{SendCounts: c})
	}
	return sum, true
}

// Close closes everything except the target.
func (s *Senders) Close() error { return s.undo.Run() }
