package region

import (
	"slices"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Domain is an open memory domain.
type Domain struct {
	MD    uct.MD
	Attr  *uct.MDAttr
	Index int // in Set.Domains

	set   *Set
	reg   uct.Registrar    // nil if it registers nothing
	alloc uct.Allocator    // nil if it allocates nothing
	keys  uct.RKeyUnpacker // nil if it has no keys
}

// Add takes an open domain into the set, which closes it.
func (s *Set) Add(md uct.MD) *Domain {
	ext := md.Ext()
	d := &Domain{set: s, MD: md, Attr: md.Attr(), Index: len(s.Domains), reg: ext.Reg, alloc: ext.Alloc, keys: ext.Keys}
	s.Domains = append(s.Domains, d)
	return d
}

// Registers reports that the domain registers n bytes.
func (d *Domain) Registers(n int) bool { return d.reg != nil && uint64(n) <= d.Attr.MaxReg }

// Keep closes the domains for which keep is false and numbers the others again.
func (s *Set) Keep(keep func(*Domain) bool) error {
	var errs []error
	s.Domains = slices.DeleteFunc(s.Domains, func(d *Domain) bool {
		if keep(d) {
			return false
		}
		errs = append(errs, d.MD.Close())
		return true
	})
	for i, d := range s.Domains {
		d.Index = i
	}
	return ucs.Join(errs...)
}
