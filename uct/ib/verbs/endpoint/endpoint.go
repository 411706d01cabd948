package endpoint

import (
	"errors"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Config is the configuration of Open. The zero value means one RC QP for each thread, in its own context.
type Config struct {
	Plan Plan
	// Type is the type of the QPs; 0 means RC.
	Type verbs.QPType
	// Cap has the depths of each QP. Zero depths mean 64 work requests with one SGE and one receive with one SGE.
	Cap verbs.QPCap
	// QPs is the number of QPs of each thread, which share its CQ and thread domain. 0 means 1.
	QPs int
	// CQDepth is the number of completions that each thread can have outstanding. The depth of a shared CQ is the sum
	// over its threads. 0 means the sum of the send depths of the thread's QPs.
	CQDepth int
	// LockCQ creates CQs with a lock even for a single thread, as ibv_create_cq does.
	LockCQ bool
}

// defaultDepth is the send depth of the study's message-rate benchmark, in work requests.
const defaultDepth = 64

func (c Config) withDefaults() (_ Config, err error) {
	if c.Plan, err = c.Plan.withDefaults(); err != nil {
		return c, err
	}
	if c.QPs < 0 || c.CQDepth < 0 {
		return c, invalid("%d QPs, CQ depth %d", c.QPs, c.CQDepth)
	}
	if c.Type == 0 {
		c.Type = verbs.QPTypeRC
	}
	c.QPs = max(c.QPs, 1)
	if c.Cap.MaxSendWR == 0 {
		c.Cap.MaxSendWR = defaultDepth
	}
	c.Cap.MaxSendSGE = max(c.Cap.MaxSendSGE, 1)
	c.Cap.MaxRecvWR = max(c.Cap.MaxRecvWR, 1)
	c.Cap.MaxRecvSGE = max(c.Cap.MaxRecvSGE, 1)
	if c.CQDepth == 0 {
		c.CQDepth = c.Cap.MaxSendWR * c.QPs
	}
	return c, nil
}

// Endpoint is the set of objects that one thread posts to and polls. The Set owns them. Open creates the QPs in RESET.
type Endpoint struct {
	Context *verbs.Context
	PD      *verbs.PD
	CQ      *verbs.CQ
	QPs     []*verbs.QP
	// SharedBy has the numbers of the objects, and of the endpoints that use each.
	SharedBy Shares
}

// Shares has the numbers of the objects of an endpoint, from 0 within its Set, and the number of endpoints that use the
// CQ and the QPs. Endpoints with equal numbers share the object.
type Shares struct {
	Context, PD, CQ, QP int // numbers from 0
	CQUsers, QPUsers    int
}

// Set is the endpoints of all threads, with the objects that they use.
type Set struct {
	Endpoints []Endpoint
	contexts  []*verbs.Context
	undo      cleanup.Stack
}

// Open creates endpoints for n threads on dev. The caller must close the Set. Errors: ErrInvalidParam for an invalid
// plan, a negative count in cfg or n < 1; the errors of package verbs, such as ErrNoMemory when the device has no more
// UAR pages.
func Open(dev *verbs.Device, n int, cfg Config) (_ *Set, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, invalid("%d threads", n)
	}
	b := builder{dev: dev, cfg: cfg, threads: n, set: &Set{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.set.Close())
		}
	}()
	for t := range n {
		if err = b.thread(t); err != nil {
			return nil, err
		}
	}
	return b.set, nil
}

// Close closes the objects of all endpoints, QPs first. The caller must first close the objects that it created on the
// contexts; otherwise Close returns ErrBusy.
func (s *Set) Close() error { return s.undo.Run() }

// Contexts returns the open contexts. The caller must not modify the slice.
func (s *Set) Contexts() []*verbs.Context { return s.contexts }

// Resources returns the sum of the resources of all contexts. A micro-UAR counts as used if a QP of an endpoint rings
// its doorbell there, and as wasted otherwise. ok is false if the provider does not count resources.
func (s *Set) Resources() (sum verbs.Resources, ok bool) {
	for _, ctx := range s.contexts {
		r, ok := ctx.Resources()
		if !ok {
			return sum, false
		}
		sum.Add(r)
	}
	type register struct{ context, page, uuar int }
	used := map[register]bool{}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		for _, qp := range e.QPs {
			r, ok := qp.Register()
			if !ok {
				return sum, false
			}
			used[register{e.SharedBy.Context, int(r.UARPage), int(r.UUAR)}] = true
		}
	}
	sum.UUARsUsed = len(used)
	sum.UUARsWasted = sum.UUARs - sum.UUARsUsed
	return sum, true
}
