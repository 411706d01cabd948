package base

import "github.com/gucx/gucx/uct"

// FlushGroups is a pool of completions for flushes of an iface: several EPs complete one
// completion of the pool, which then completes that of the user. The zero value is ready. The pool grows
// to the number of flushes in flight. It must not be copied after its first use.
type FlushGroups struct{ free *flushGroup }

type flushGroup struct {
	comp uct.Completion
	user *uct.Completion
	next *flushGroup
}

// Get returns a completion that completes user when it has been completed n times.
func (p *FlushGroups) Get(user *uct.Completion, n int) *uct.Completion {
	g := p.free
	if g == nil {
		g = new(flushGroup)
		g.comp.Func = func(*uct.Completion) { p.done(g) }
	} else {
		p.free = g.next
	}
	g.next, g.user, g.comp.Count = nil, user, n
	return &g.comp
}

func (p *FlushGroups) done(g *flushGroup) {
	user, st := g.user, g.comp.Status
	g.user, g.comp.Status = nil, 0
	g.next, p.free = p.free, g
	user.Complete(st)
}
