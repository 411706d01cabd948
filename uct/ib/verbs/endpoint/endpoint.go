package endpoint

import (
	"errors"

	"github.com/gucx/gucx/internal/cleanup"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Config says what Open makes. The zero value is one RC QP for each thread, in a
// context of its own.
type Config struct {
	Plan Plan
	// Type of the QPs; 0 means RC.
	Type verbs.QPType
	// Cap are the depths of each QP; zero depths mean 64 work requests and one SGE,
	// and one receive.
	Cap verbs.QPCap
	// QPs is how many each thread has; they share its CQ and thread domain. 0
	// means 1.
	QPs int
	// CQDepth is how many completions each thread can have outstanding; a shared
	// CQ is as deep as all need together. 0 means the send depth of its QPs.
	CQDepth int
	// LockCQ has the CQs of one thread take their lock too, as those of
	// ibv_create_cq do.
	LockCQ bool
}

// defaultDepth is that of the study's message-rate benchmark.
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

// Endpoint is what one thread posts to and polls. Its QPs are in RESET.
type Endpoint struct {
	Context *verbs.Context
	PD      *verbs.PD
	CQ      *verbs.CQ
	QPs     []*verbs.QP
	// Context number and so on: endpoints with equal numbers share the object.
	SharedBy Shares
}

// Shares numbers the objects of an endpoint within its Set, and says how many
// endpoints use the CQ and the QPs.
type Shares struct {
	Context, PD, CQ, QP int // numbers from 0
	CQUsers, QPUsers    int
}

// Set is all endpoints of a process.
type Set struct {
	Endpoints []Endpoint
	contexts  []*verbs.Context
	undo      cleanup.Stack
}

// Open makes endpoints for n threads on dev. Errors: ErrInvalidParam for a plan
// that cannot be, and those of package verbs: ErrNoMemory when the device has no
// more UAR pages.
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

// Close closes everything, QPs first. What the caller has made on the contexts
// must be closed before; ErrBusy otherwise.
func (s *Set) Close() error { return s.undo.Run() }

// Contexts lists the open contexts.
func (s *Set) Contexts() []*verbs.Context { return s.contexts }

// Resources adds up what the contexts have allocated. A micro-UAR counts as used
// when a QP of an endpoint rings there, and as wasted otherwise. False if the
// provider does not count.
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
