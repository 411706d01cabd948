package ucp

import (
	"github.com/gucx/gucx/ucp/internal/regcache"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
)

// lease is a cached registration of memory of the caller. Mem is the registered memory.
type lease regcache.Entry[*region.Mem]

// end releases the registration. No transport may use the buffer any more.
func (l *lease) end() { l.Cache.Put((*regcache.Entry[*region.Mem])(l)) }

// revoke is end for memory of which a peer may have a key: it deregisters the memory, unless
// another operation uses it.
func (l *lease) revoke() {
	l.Cache.Discard((*regcache.Entry[*region.Mem])(l))
	l.end()
}

// endLease releases the registration of a complete request. If the operation has failed, the peer
// may still use its key, so the registration is revoked.
func (r *Request) endLease() {
	l := r.leased
	r.leased = nil
	if r.status == ucs.StatusOK || r.status == ucs.StatusTruncated {
		l.end()
	} else {
		l.revoke()
	}
}
