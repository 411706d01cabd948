package ucp

import (
	"github.com/gucx/gucx/ucp/internal/regcache"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
)

// lease is memory of the caller that is registered while an operation uses it, and maybe
// longer: Mem, which its domain has.
type lease regcache.Entry[*region.Mem]

// end gives the memory back: no transport has the buffer any more.
func (l *lease) end() { l.Cache.Put((*regcache.Entry[*region.Mem])(l)) }

// revoke is end after which no peer that has got a key reaches the memory, unless it is in
// another use, too: it is deregistered.
func (l *lease) revoke() {
	l.Cache.Discard((*regcache.Entry[*region.Mem])(l))
	l.end()
}

// endLease is called when the request has ended. A peer that has a key for memory of an
// operation that has failed may use it late.
func (r *Request) endLease() {
	l := r.leased
	r.leased = nil
	if r.status == ucs.StatusOK || r.status == ucs.StatusTruncated {
		l.end()
	} else {
		l.revoke()
	}
}
