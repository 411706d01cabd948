package ucp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// domain is an open memory domain.
type domain struct {
	md    uct.MD
	comp  uct.Component
	attr  *uct.MDAttr
	reg   uct.Registrar    // nil if it registers nothing
	alloc uct.Allocator    // nil if it allocates nothing
	keys  uct.RKeyUnpacker // nil if it has no keys

	// Of a device that workers do not share; under Context.growth.
	first int  // number of the first domain of the device, which offers name
	taken bool // a worker has it
}

func newDomain(comp uct.Component, md uct.MD) *domain {
	d := &domain{md: md, comp: comp, attr: md.Attr()}
	d.reg, _ = md.(uct.Registrar)
	d.alloc, _ = md.(uct.Allocator)
	d.keys, _ = md.(uct.RKeyUnpacker)
	return d
}

// seat is the memory domains of one worker: those that the context opened, and in
// their place one of its own for each device that workers do not share.
type seat struct {
	number  []int // in Context.mds, by the number that offers name
	domains []*domain
	names   []string // components of all domains of the context at that time
}

// alone reports whether each worker has a domain of its own for the device of d.
func (c *Context) alone(d *domain) bool {
	return d.attr.Endpoints && c.cfg.IBEndpoints == uct.EndpointsMPIEverywhere
}

// maxDomains is how many domains there may be.
func (c *Context) maxDomains() int {
	if slices.ContainsFunc(c.mds, c.alone) {
		return wireup.MaxMDs
	}
	return len(c.mds)
}

// takeSeat finds or opens the domains of a new worker, and registers the memory
// that there is with those that are new.
func (c *Context) takeSeat() (_ *seat, err error) {
	c.growth.Lock()
	defer c.growth.Unlock()
	s := &seat{}
	for i := range c.opened {
		n, err := c.seatAt(i)
		if err != nil {
			s.leave()
			return nil, err
		}
		s.number = append(s.number, n)
		s.domains = append(s.domains, c.mds[n])
	}
	for _, d := range c.mds {
		s.names = append(s.names, d.attr.Component)
	}
	return s, nil
}

// seatAt is the number of a domain for the device of domain i. growth is held.
func (c *Context) seatAt(i int) (int, error) {
	if !c.alone(c.mds[i]) {
		return i, nil
	}
	for n, d := range c.mds {
		if d.first == i && !d.taken {
			d.taken = true
			return n, nil
		}
	}
	return c.openAnother(i)
}

// openAnother opens the device of domain i once more.
func (c *Context) openAnother(i int) (int, error) {
	n, like := len(c.mds), c.mds[i]
	if n == wireup.MaxMDs {
		return 0, fmt.Errorf("%d memory domains, one for each worker with IB_ENDPOINTS=%v: use another category or several contexts: %w",
			n, c.cfg.IBEndpoints, ucs.ErrTooLong)
	}
	md, err := like.comp.OpenMD(like.attr.Name)
	if err != nil {
		return 0, err
	}
	d := newDomain(like.comp, md)
	d.first, d.taken = i, true
	for _, m := range c.regions.all() {
		if err = m.join(d, n); err != nil {
			return 0, errors.Join(err, c.withdraw(n), md.Close())
		}
	}
	c.mds = append(c.mds, d)
	return n, nil
}

// withdraw undoes join of every memory with domain n.
func (c *Context) withdraw(n int) error {
	var errs []error
	for _, m := range c.regions.all() {
		errs = append(errs, m.leave(n))
	}
	return errors.Join(errs...)
}

// giveSeat lets another worker have the domains.
func (c *Context) giveSeat(s *seat) {
	c.growth.Lock()
	defer c.growth.Unlock()
	s.leave()
}

// leave is giveSeat with growth held.
func (s *seat) leave() {
	for _, d := range s.domains {
		d.taken = false
	}
}
