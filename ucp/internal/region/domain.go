package region

import (
	"slices"
	"sync/atomic"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// Domain is an open memory domain.
type Domain struct {
	MD    uct.MD
	Attr  *uct.MDAttr
	Index int // in Set.Domains

	set    *Set
	number uint64           // Set.first plus Index
	reg    uct.Registrar    // nil if it registers nothing
	alloc  uct.Allocator    // nil if it allocates nothing
	keys   uct.RKeyUnpacker // nil if it has no keys
}

// sets counts those of the process, each of which numbers its domains from a number of its own on:
// the memory of one has no domain of another. maxDomains is more than a host has.
var sets atomic.Uint64

const maxDomains = 1 << 16

// Add takes an open domain into the set, which closes it.
func (s *Set) Add(md uct.MD) *Domain {
	if s.first == 0 {
		s.first = sets.Add(1) * maxDomains
	}
	ext, i := md.Ext(), len(s.Domains)
	d := &Domain{set: s, MD: md, Attr: md.Attr(), Index: i, number: s.first + uint64(i), reg: ext.Reg, alloc: ext.Alloc, keys: ext.Keys}
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
		d.Index, d.number = i, s.first+uint64(i)
	}
	return ucs.Join(errs...)
}
