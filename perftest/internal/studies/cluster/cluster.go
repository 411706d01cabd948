// Package cluster runs programs over ucp in virtual time: ranks on machines that are a
// model, each with a core and a clock of its own, beside NICs that work by themselves.
//
//	program   Compute, Wait: its clock goes on         another rank
//	   |                                                    |
//	ucp worker: the code that runs in real time         ucp worker
//	   |                                                    |
//	rc, xrc: posts and polls cost time                   rc, xrc
//	   |                                                    |
//	software HCA ---- arrival after latency, bandwidth -- software HCA
//
// Ranks of one node also reach each other over sm, if the configuration permits it.
//
// All ranks run on one goroutine's time, the one with the smallest clock first, and are
// switched where they post, poll, compute and wait. Progress of a worker happens in the
// rank's own calls and nowhere else. What costs time: posts and polls as package timing has
// them, copies between buffers by bytes, computation as the program says. Instructions of
// ucp besides these are free, unless Software or SharedMemory has them. Connections are made, and memory is registered, before time
// begins. A run depends on its inputs alone: workers send no keepalives, no timeout of real time
// expires, datagrams are not sent again, sm connects in the call that posts, and costs of transports are the declared ones.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/sm"
	"github.com/gucx/gucx/uct/wrap"
	"github.com/gucx/gucx/wireup"
)

// Config describes a cluster.
type Config struct {
	// Params are the costs of the machines.
	Params timing.Params
	// Nodes is the number of NICs; ranks are assigned to them in blocks. 0 means one for each rank.
	Nodes int
	Ranks int
	// Seed determines the start times of ranks, within a microsecond, and the jitter of Params.
	Seed uint64
	// UCP and UCT are the configuration of all ranks. Devices of UCT are replaced. Intervals and timeouts in real time
	// have no effect: KeepaliveInterval, WireupTimeout, EPIdleTimeout and LaneRetryInterval of UCP, RTO, MaxRTO and
	// Timeout of datagrams, and ConnectTimeout of sm. UCP uses declared costs.
	UCP ucp.Config
	UCT all.Config
	// Software is the time that a rank's CPU spends on operations in addition to the costs of Params.
	Software Software
	// SM is the time that it spends on operations over sm.
	SM SharedMemory
}

// Software is CPU time.
type Software struct {
	// Post is the time before an operation is posted, by variant, instead of Params.PostCall; 0 means Params.PostCall.
	// An attempt that fails takes no time.
	Post [uct.NumVariants]timing.Time
	// Receive is the time before the handler of an active message is called.
	Receive timing.Time
}

// Cluster is a set of connected ranks. One goroutine uses it.
type Cluster struct {
	cfg   Config
	model *timing.Model
	ctx   *ucp.Context
	ranks []*Rank
	mems  []*ucp.Mem
	sm    *sharedMemory
	undo  cleanup.Stack

	senderCopies bool
}

// Open creates the machines and a worker for each rank.
func Open(cfg Config) (_ *Cluster, err error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = cfg.Ranks
	}
	if cfg.Ranks < 1 || cfg.Nodes < 1 || cfg.Nodes > cfg.Ranks {
		return nil, fmt.Errorf("cluster: %d ranks on %d nodes", cfg.Ranks, cfg.Nodes)
	}
	cfg.withoutTimers()
	c := &Cluster{cfg: cfg, senderCopies: cfg.UCP.TagProto == copyingProto}
	c.sm = &sharedMemory{c: c, ifaces: map[string]*smIface{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.model, err = timing.NewNetwork(cfg.Params); err != nil {
		return nil, err
	}
	if err = c.openContext(); err != nil {
		return nil, err
	}
	for i := range cfg.Ranks {
		if err = c.addRank(); err != nil {
			return nil, fmt.Errorf("cluster: rank %d: %w", i, err)
		}
	}
	return c, c.number()
}

// withoutTimers removes what depends on real time: timers, which would post messages into virtual time, measured costs, and
// connections by other goroutines.
func (c *Config) withoutTimers() {
	u := &c.UCP
	u.Costs = ucp.CostsDeclared
	u.KeepaliveInterval, u.WireupTimeout, u.EPIdleTimeout, u.LaneRetryInterval = config.Infinite, config.Infinite, config.Infinite, config.Infinite
	v, d := &c.UCT.UD, &c.UCT.UDMLX5
	v.RTO, v.MaxRTO, v.Timeout = never, never, never
	d.RTO, d.MaxRTO, d.Timeout = never, never, never
	c.UCT.SM.DialInPost, c.UCT.SM.ConnectTimeout = true, never
}

// never is longer than any run.
const never = 1000 * time.Hour

// number assigns numbers and NICs to ranks. Workers have random names, and the order of two names determines which side
// starts a handshake. So ranks are sorted by name: all runs have the same handshakes.
func (c *Cluster) number() error {
	names := map[*Rank]uint64{}
	for _, r := range c.ranks {
		a, err := wireup.UnpackAddress(r.w.Address())
		if err != nil {
			return err
		}
		names[r] = a.UUID()
	}
	slices.SortFunc(c.ranks, func(a, b *Rank) int { return cmp.Compare(names[a], names[b]) })
	var nic *timing.NIC
	for i, r := range c.ranks {
		r.id = i
		if i > 0 && c.node(i) != c.node(i-1) {
			nic = c.model.NewNIC()
		}
		if nic != nil {
			r.process.Place(nic)
		}
	}
	return nil
}

// node returns the node of a rank.
func (c *Cluster) node(rank int) int { return rank * c.cfg.Nodes / c.cfg.Ranks }

// openContext opens the device, which all ranks use: its model distinguishes the NICs.
func (c *Cluster) openContext() (err error) {
	uct := c.cfg.UCT
	uct.Devices = func() ([]*verbs.Device, error) {
		d, err := softhca.NewDevice(softhca.Config{Timing: c.model})
		return []*verbs.Device{d}, err
	}
	comps := uct.Components()
	for i, comp := range comps {
		layer := copies(c.model, &c.cfg.Software)
		if comp.Name() == sm.Name {
			layer = c.sm.layer()
		}
		comps[i] = wrap.Component(comp, layer)
	}
	if c.ctx, err = ucp.NewContext(c.cfg.UCP, comps...); err == nil {
		c.undo.Add(c.ctx.Close)
		c.undo.Add(c.closeMemory)
	}
	return err
}

// closeMemory is called after the workers are closed, whose operations may use the memory.
func (c *Cluster) closeMemory() error {
	var errs []error
	for _, m := range c.mems {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

func (c *Cluster) addRank() (err error) {
	r := &Rank{c: c, process: c.model.NewProcess(), eps: make([]*ucp.EP, c.cfg.Ranks), copied: map[tuple]bool{}}
	c.model.Enter(r.process)
	c.sm.opening = r
	defer c.model.Enter(nil)
	if r.w, err = c.ctx.NewWorker(ucp.WorkerConfig{SpinPolls: -1}); err != nil {
		return err
	}
	c.ranks = append(c.ranks, r)
	c.undo.Add(r.w.Close)
	return nil
}

// Ranks returns the ranks by number.
func (c *Cluster) Ranks() []*Rank { return c.ranks }

// MemAlloc allocates memory for messages of all ranks. It exists until Close.
func (c *Cluster) MemAlloc(n int) (*ucp.Mem, error) {
	m, err := c.ctx.MemAlloc(n)
	if err == nil {
		c.mems = append(c.mems, m)
	}
	return m, err
}

// Nodes returns the number of NICs.
func (c *Cluster) Nodes() int { return c.cfg.Nodes }

// Stats returns the statistics of the machines.
func (c *Cluster) Stats() timing.Stats { return c.model.Stats() }

// Close closes everything.
func (c *Cluster) Close() error { return c.undo.Run() }

// Program is the program of a rank.
type Program func(r *Rank) error

// Run runs a program on each rank in virtual time, and returns when all have returned. The first error stops the run;
// timing.ErrStalled if all ranks wait for events that cannot occur.
func (c *Cluster) Run(program Program) ([]time.Duration, error) {
	var steps []timing.Step
	for _, r := range c.ranks {
		steps = append(steps, func() (bool, error) {
			c.model.Enter(r.process)
			return true, program(r)
		})
	}
	ran, err := c.model.Run(c.cfg.Seed, steps)
	var ends []time.Duration
	for _, t := range ran {
		ends = append(ends, duration(t.End))
	}
	return ends, err
}

// duration rounds down to a nanosecond.
func duration(t timing.Time) time.Duration { return time.Duration(t / timing.Nanosecond) }

// copies is a layer that charges a rank for its software and for copies: into the buffers from which a transport sends,
// and out of those into which it receives.
func copies(m *timing.Model, s *Software) wrap.Hooks {
	return wrap.Hooks{
		Iface: func(i *wrap.Iface) { i.Iface = &copyingIface{i.Iface, m, s.Receive} },
		EP: func(e *wrap.EP) {
			if e.Has.Get != nil {
				e.Has.Get = &copyingGetter{e.Has.Get, m}
			}
			e.Intercept(copyingEP{m, s})
		},
	}
}

type copyingIface struct {
	uct.Iface
	m       *timing.Model
	receive timing.Time
}

// SetAMHandler implements uct.Iface.
func (i *copyingIface) SetAMHandler(id uint8, h uct.AMHandler) error {
	if h == nil {
		return i.Iface.SetAMHandler(id, nil)
	}
	return i.Iface.SetAMHandler(id, uct.AMHandlerFunc(func(data []byte, d uct.Desc) bool {
		i.m.Handled(i.receive)
		i.m.Copy(len(data))
		return h.HandleAM(data, d)
	}))
}

type copyingEP struct {
	m *timing.Model
	s *Software
}

// Before implements wrap.Interceptor.
func (e copyingEP) Before(v uct.Variant) error {
	e.m.BeforePost(e.s.Post[v])
	return nil
}

// After implements wrap.Interceptor. Short operations are written into work requests, and zero-copy operations copy
// nothing.
func (e copyingEP) After(v uct.Variant, n int, err error) {
	e.m.AfterPost(err == nil)
	if err != nil {
		return
	}
	switch v {
	case uct.AMBcopy, uct.PutBcopy:
		e.m.Copy(n)
	}
}

// copyingGetter charges for the copy of a get when its data has arrived.
type copyingGetter struct {
	uct.Getter
	m *timing.Model
}

// GetBcopy implements uct.Getter.
func (g *copyingGetter) GetBcopy(buf []byte, raddr uint64, key uct.RKey, c *uct.Completion) (pending bool, err error) {
	came := &uct.Completion{Count: 1}
	came.Func = func(*uct.Completion) {
		if came.Status == ucs.StatusOK {
			g.m.Copy(len(buf))
		}
		if c != nil {
			c.Complete(came.Status)
		}
	}
	if pending, err = g.Getter.GetBcopy(buf, raddr, key, came); !pending && err == nil {
		g.m.Copy(len(buf))
	}
	return pending, err
}
