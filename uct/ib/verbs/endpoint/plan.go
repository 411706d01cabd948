package endpoint

import (
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// Plan says how many threads share each kind of object; 0 means 1. Threads that
// share are neighbors: with 4, threads 0 to 3 share the first object.
type Plan struct {
	// Context and PD. Who shares a PD shares its context.
	Context, PD int
	// CQ and QP. Who shares one shares its context, and its PD for a QP; who shares
	// a QP shares its CQ.
	CQ, QP int
	// Domain is the sharing level of the thread domain that each thread's QPs are
	// in: 1 for a UAR page of its own, 2 for a page with another thread; 0 for none,
	// so that the policy of the context finds the micro-UAR. A QP in a thread
	// domain cannot be shared.
	Domain int
	// Spare makes everything but contexts and PDs twice, and uses one of the two.
	Spare bool
}

// WithCQ is the plan with k threads on each CQ, or as many as it has already if
// they share more.
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
			return p, invalid("%d threads share a %s, which cannot lie within the %s of %d", in.inner, in.innerName, in.outerName, in.outer)
		}
	}
	switch {
	case p.Domain < 0 || p.Domain > 2:
		return p, invalid("sharing level %d of thread domains: want 1, 2, or 0 for no domains", p.Domain)
	case p.Domain > 0 && p.QP > 1:
		return p, invalid("%d threads share a QP, which cannot be in a thread domain then", p.QP)
	}
	return p, nil
}

func invalid(format string, args ...any) error {
	return &ucs.OpError{TL: "endpoint", Op: "plan", Err: fmt.Errorf(format+": %w", append(args, ucs.ErrInvalidParam)...)}
}
