package ucp

import (
	"github.com/gucx/gucx/ucp/internal/regcache"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
)

// cachedReg is a cached registration of memory of the caller. Mem is the registered memory.
type cachedReg regcache.Entry[*region.Mem]

// release releases the registration. No transport may use the buffer any more.
func (l *cachedReg) release() { l.Cache.Put((*regcache.Entry[*region.Mem])(l)) }

// revoke is release for memory of which a peer may have a key. It deregisters the memory, at once or when no other operation
// uses it any more.
func (l *cachedReg) revoke() {
	l.Cache.Discard((*regcache.Entry[*region.Mem])(l))
	l.release()
}

// releaseCached releases the registration of a complete request. If the operation has failed, the peer
// may still use its key, so the registration is revoked.
func (r *Request) releaseCached() {
	l := r.cached
	r.cached = nil
	if r.status == ucs.StatusOK || r.status == ucs.StatusTruncated {
		l.release()
	} else {
		l.revoke()
	}
}
