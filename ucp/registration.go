package ucp

import (
	"sort"

	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/regcache"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// transferState is the state of a worker for puts, gets and the data of messages.
type transferState struct {
	freeLists *pieceList // free list of pieceLists
	regCaches regCaches  // registration caches for memory of callers
	lateKeys  bool       // Study.KeyResolve is ResolveAtOp
}

// transferProtocol is shared by puts, gets and messages.
var transferProtocol = protocol{
	init:   func(w *Worker) { w.transfers.lateKeys = w.ctx.cfg.Study.KeyResolve == ResolveAtOp },
	bind:   (*EP).bindKeys,
	unbind: (*EP).unbindKeys,
	closed: (*Worker).closeRegCaches,
}

// regCache caches registrations of callers' memory with one memory domain or group.
type regCache = regcache.Cache[*region.Mem]

// regCaches is the caches of a worker: first by the index of the domain, then by the index of the
// group in Worker.lanes.groups. An element is nil until memory is registered there.
type regCaches []*regCache

// regCache returns the cache of a domain.
func (w *Worker) regCache(d *region.Domain) *regCache {
	return w.cacheAt(d.Index, d, d.Attr.Component, d.Attr.Name)
}

func (w *Worker) cacheAt(i int, with regcache.Registrar[*region.Mem], component, name string) *regCache {
	if w.transfers.regCaches == nil {
		w.transfers.regCaches = make(regCaches, len(w.ctx.memory.Domains))
	}
	for i >= len(w.transfers.regCaches) {
		w.transfers.regCaches = append(w.transfers.regCaches, nil)
	}
	if w.transfers.regCaches[i] == nil {
		w.transfers.regCaches[i] = regcache.New(with, regcache.Config(w.ctx.cfg.RCache))
		w.stats.addCache(component, name, w.transfers.regCaches[i])
	}
	return w.transfers.regCaches[i]
}

// groupCache returns the cache of Worker.lanes.groups[i].
func (w *Worker) groupCache(i int) *regCache {
	g, names := w.lanes.groups[i], ""
	for k, d := range g {
		if k > 0 {
			names += "+"
		}
		names += d.Attr.Name
	}
	return w.cacheAt(len(w.ctx.memory.Domains)+i, g, g[0].Attr.Component, names)
}

// registerCached returns a cached registration of buf with the given access. Release it with release. Errors: as
// regcache.Cache.Get.
func (w *Worker) registerCached(d *region.Domain, buf []byte, access uct.Access) (*cachedReg, error) {
	e, err := w.regCache(d).Get(buf, access)
	return (*cachedReg)(e), err
}

// canRegister reports whether an operation over the transport may register n bytes.
func (i *iface) canRegister(n int) bool {
	return i.w.ctx.cfg.RCache.Enable != config.No && i.domain.Registers(n)
}

// registeredCost returns m with the cost of registering n bytes.
func (i *iface) registeredCost(m proto.Move, n int) proto.Move {
	m.Registers, m.Adds = true, (*regcache.Config)(&i.w.ctx.cfg.RCache).Adds(i.domain.Attr.RegCost, n)
	return m
}

// remoteRegisteredCost returns m with the cost of access to memory of the peer that was registered, not
// allocated by a domain.
func (i *iface) remoteRegisteredCost(m proto.Move) proto.Move {
	if far := i.costs().RegReach; far != (uct.Cost{}) {
		m.Cost = far
	}
	return m
}

// registerBuffer registers the buffer of the request: with the domains of all lanes that may share it if the
// buffer is large enough, otherwise with one domain. It reports whether the buffer is registered.
func (r *Request) registerBuffer(d *region.Domain, access uct.Access) bool {
	if x := r.ep.link; x != nil && x.group >= 0 && len(r.buf) >= r.worker.ctx.cfg.sharedFrom() {
		if e, err := r.worker.groupCache(x.group).Get(r.buf, access); err == nil {
			r.cached, r.mem = (*cachedReg)(e), e.Mem
			return true
		}
	}
	l, err := r.worker.registerCached(d, r.buf, access)
	if err != nil {
		return false
	}
	r.cached, r.mem = l, l.Mem
	return true
}

// registerLocal registers the local buffer of a put or get if that is faster. first is the variant for
// proto.Short.
func (r *Request) registerLocal(tables func(*transfers) *[2]proto.Table, first uct.Variant, access uct.Access) {
	i, n := r.ep.transport(wireup.RMA), len(r.buf)
	if i == nil || !i.domain.Attr.NeedMemH || !i.canRegister(n) {
		return
	}
	if i.registrationPays(tables(i.transfers()), n, first) {
		r.registerBuffer(i.domain, access)
	}
}

// registrationPays reports whether a put or get of n bytes is faster with a registered local buffer.
func (i *iface) registrationPays(t *[2]proto.Table, n int, first uct.Variant) bool {
	costs := &i.attr.Costs
	direct := i.registeredCost(moveAt(costs, &t[registered], n, first), n)
	return proto.Faster(n, moveAt(costs, &t[unregistered], n, first), direct).Registers
}

// minRegistered returns the least length in bytes of a put or get that registers its local buffer; 0
// if there is none.
func (i *iface) minRegistered(t *[2]proto.Table, first uct.Variant) int {
	if !i.domain.Attr.NeedMemH || !i.canRegister(1) {
		return 0
	}
	longest := int(min(i.domain.Attr.MaxReg, maxConsidered))
	n := 1 + sort.Search(longest, func(k int) bool { return i.registrationPays(t, k+1, first) })
	if n > longest {
		return 0
	}
	return n
}

// maxConsidered is the upper limit of the search of minRegistered, in bytes.
const maxConsidered = 1 << 30

// Invalidate deregisters all cached registrations of this worker that overlap memory. Call it before memory is
// unmapped or remapped, and before the Mem of [Context.MemAlloc] that contains it is closed. Memory of the Go heap needs
// no call. ErrBusy while operations use the memory: call it again when they are complete. Other errors are those of
// deregistration.
func (w *Worker) Invalidate(memory []byte) error {
	return w.transfers.regCaches.each(func(c *regCache) error { return c.Invalidate(memory) })
}

// Purge deregisters all cached registrations of this worker that no operation uses, so that the garbage collector can
// free memory of the Go heap. The error is that of
// deregistration.
func (w *Worker) Purge() error { return w.transfers.regCaches.each((*regCache).Purge) }

// each calls f with each cache and joins the errors.
func (l regCaches) each(f func(*regCache) error) error {
	var errs []error
	for _, c := range l {
		if c != nil {
			errs = append(errs, f(c))
		}
	}
	return ucs.Join(errs...)
}

// closeRegCaches deregisters all memory after all operations have completed. If a cache cannot close
// because a peer is still accessing memory, the context closes it later.
func (w *Worker) closeRegCaches() {
	for _, c := range w.transfers.regCaches {
		if c != nil && c.Close() != nil {
			w.ctx.closeOnClose(c)
		}
	}
}

// addCache adds the counters of a cache, for example "worker/rcache@sm.hits".
func (s *workerStats) addCache(component, name string, c *regCache) {
	at := "rcache@" + component
	if name != component {
		at += "/" + name
	}
	c.AddStats(s.root.Child(at))
}

// moveAt returns the cost of moving n bytes with the protocol that t selects. first is the variant
// for proto.Short; those for proto.Bcopy and proto.Zcopy follow it.
func moveAt(costs *uct.Costs, t *proto.Table, n int, first uct.Variant) (m proto.Move) {
	way := t.Find(n)
	if way.Protocol == proto.None {
		return m
	}
	return proto.Move{Cost: costs[first+uct.Variant(way.Protocol-proto.Short)], Piece: way.Piece}
}
