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

// sets is the number of Sets that the process has made. Each Set numbers its domains from a multiple of maxDomains on, so
// the domains of two Sets have different numbers and Mem.In finds no domain of another Set. A host has fewer domains than
// maxDomains.
var sets atomic.Uint64

const maxDomains = 1 << 16

// Add adds an open domain to the set. The set owns the domain, and closes it.
func (s *Set) Add(md uct.MD) *Domain {
	if s.first == 0 {
		s.first = sets.Add(1) * maxDomains
	}
	ext, i := md.Ext(), len(s.Domains)
	d := &Domain{set: s, MD: md, Attr: md.Attr(), Index: i, number: s.first + uint64(i), reg: ext.Reg, alloc: ext.Alloc, keys: ext.Keys}
	s.Domains = append(s.Domains, d)
	return d
}

// Registers reports whether the domain can register n bytes.
func (d *Domain) Registers(n int) bool { return d.reg != nil && uint64(n) <= d.Attr.MaxReg }

// CloseUnused closes and removes the domains for which used returns false. It numbers the other domains again.
func (s *Set) CloseUnused(used func(*Domain) bool) error {
	var errs []error
	s.Domains = slices.DeleteFunc(s.Domains, func(d *Domain) bool {
		if used(d) {
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
