package endpoint

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// Plan is the number of threads that share an object, for each type of object; 0 means 1. Threads with consecutive
// numbers share: with 4, threads 0 to 3 share the first object.
type Plan struct {
	// Context and PD are the numbers of threads on a context and on a PD. Context must be a multiple of PD.
	Context, PD int
	// CQ and QP are the numbers of threads on a CQ and on a QP. Context must be a multiple of CQ; PD and CQ must be
	// multiples of QP.
	CQ, QP int
	// Domain is the sharing level of each thread's thread domain: 1 means its own UAR page, 2 means a UAR page shared
	// with another thread. 0 means no thread domain: the policy of the context assigns the micro-UAR. QP must be 1 if
	// Domain is not 0.
	Domain int
	// Spare creates each thread domain, CQ and QP twice; the second one is not used.
	Spare bool
}

// WithCQ returns the plan with at least k threads on each CQ.
func (p Plan) WithCQ(k int) Plan {
	p.CQ = max(p.CQ, k)
	return p
}

func (p Plan) withDefaults() (Plan, error) {
	for _, n := range []*int{&p.Context, &p.PD, &p.CQ, &p.QP} {
		if *n < 0 {
			return p, invalid("%d threads share an object", *n)
		}
		if *n == 0 {
			*n = 1
		}
	}
	for _, in := range []struct {
		inner, outer         int
		innerName, outerName string
	}{
		{p.PD, p.Context, "PD", "context"}, {p.CQ, p.Context, "CQ", "context"},
		{p.QP, p.PD, "QP", "PD"}, {p.QP, p.CQ, "QP", "CQ"},
	} {
		if in.outer%in.inner != 0 {
			return p, invalid("%d threads share a %s, but the %s is shared by %d, which is no multiple", in.inner, in.innerName, in.outerName, in.outer)
		}
	}
	switch {
	case p.Domain < 0 || p.Domain > 2:
		return p, invalid("sharing level %d of thread domains: want 1, 2, or 0 for no domains", p.Domain)
	case p.Domain > 0 && p.QP > 1:
		return p, invalid("%d threads share a QP: a shared QP cannot be in a thread domain", p.QP)
	}
	return p, nil
}

func invalid(format string, args ...any) error {
	return &ucs.OpError{TL: "endpoint", Op: "plan", Err: fmt.Errorf(format+": %w", append(args, ucs.ErrInvalidParam)...)}
}
