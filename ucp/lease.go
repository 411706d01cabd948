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

// transferState is what a worker has for puts, gets and the data of messages.
type transferState struct {
	freeLists *pieceList // records for data in pieces
	leases    regCaches  // memory of callers that operations have registered
	lateKeys  bool       // Study.KeyResolve is ResolveAtOp
}

// transferProtocol is what puts, gets and messages share.
var transferProtocol = protocol{
	init:   func(w *Worker) { w.transfers.lateKeys = w.ctx.cfg.Study.KeyResolve == ResolveAtOp },
	bind:   (*EP).bindKeys,
	unbind: (*EP).unbindKeys,
	closed: (*Worker).closeLeases,
}

// regCache keeps memory of callers registered with one memory domain.
type regCache = regcache.Cache[*region.Mem]

// regCaches are those of a worker by the index of the domain, and behind them those of
// Worker.lanes.groups; nil where nothing was registered.
type regCaches []*regCache

// regCache is the cache of a domain.
func (w *Worker) regCache(d *region.Domain) *regCache {
	return w.cacheAt(d.Index, d, d.Attr.Component, d.Attr.Name)
}

func (w *Worker) cacheAt(i int, with regcache.Registrar[*region.Mem], component, name string) *regCache {
	if w.transfers.leases == nil {
		w.transfers.leases = make(regCaches, len(w.ctx.memory.Domains))
	}
	for i >= len(w.transfers.leases) {
		w.transfers.leases = append(w.transfers.leases, nil)
	}
	if w.transfers.leases[i] == nil {
		w.transfers.leases[i] = regcache.New(with, regcache.Config(w.ctx.cfg.RCache))
		w.stats.addCache(component, name, w.transfers.leases[i])
	}
	return w.transfers.leases[i]
}

// groupCache is the cache of a group.
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

// lease has buf be registered with a domain, with these rights and no others, until the
// lease ends. Errors: as regcache.Cache.Get.
func (w *Worker) lease(d *region.Domain, buf []byte, access uct.Access) (*lease, error) {
	e, err := w.regCache(d).Get(buf, access)
	return (*lease)(e), err
}

// leases reports that memory of n bytes may be registered for an operation over the
// transport.
func (i *iface) leases(n int) bool {
	return i.w.ctx.cfg.RCache.Enable != config.No && i.domain.Registers(n)
}

// leased is a way to move n bytes from or to memory that is registered for it.
func (i *iface) leased(m proto.Move, n int) proto.Move {
	m.Registers, m.Adds = true, (*regcache.Config)(&i.w.ctx.cfg.RCache).Adds(i.domain.Attr.RegCost, n)
	return m
}

// reachesFar is a way to move bytes to or from memory of the peer that is registered, and
// not allocated by a domain.
func (i *iface) reachesFar(m proto.Move) proto.Move {
	if far := i.costs().RegReach; far != (uct.Cost{}) {
		m.Cost = far
	}
	return m
}

// lease has the buffer of the request be registered with a domain, and if several lanes may
// share it with those of all of them. It reports false if that is not possible.
func (r *Request) lease(d *region.Domain, access uct.Access) bool {
	if x := r.ep.link; x != nil && x.group >= 0 && len(r.buf) >= r.worker.ctx.cfg.sharedFrom() {
		if e, err := r.worker.groupCache(x.group).Get(r.buf, access); err == nil {
			r.leased, r.mem = (*lease)(e), e.Mem
			return true
		}
	}
	l, err := r.worker.lease(d, r.buf, access)
	if err != nil {
		return false
	}
	r.leased, r.mem = l, l.Mem
	return true
}

// leaseLocal has the local buffer of a put or get be registered if that pays. first is the
// variant that is proto.Short.
func (r *Request) leaseLocal(tables func(*transfers) *[2]proto.Table, first uct.Variant, access uct.Access) {
	i, n := r.ep.transport(wireup.RMA), len(r.buf)
	if i == nil || !i.domain.Attr.NeedMemH || !i.leases(n) {
		return
	}
	if i.leasePays(tables(i.transfers()), n, first) {
		r.lease(i.domain, access)
	}
}

// leasePays reports that a put or get of n bytes takes less time if the local buffer is
// registered for it.
func (i *iface) leasePays(t *[2]proto.Table, n int, first uct.Variant) bool {
	costs := &i.attr.Costs
	bare := i.leased(moveAt(costs, &t[registered], n, first), n)
	return proto.Quicker(n, moveAt(costs, &t[unregistered], n, first), bare).Registers
}

// leasedFrom is the least length of a put or get for which the local buffer is registered;
// 0 if there is none.
func (i *iface) leasedFrom(t *[2]proto.Table, first uct.Variant) int {
	if !i.domain.Attr.NeedMemH || !i.leases(1) {
		return 0
	}
	longest := int(min(i.domain.Attr.MaxReg, longestLease))
	n := 1 + sort.Search(longest, func(k int) bool { return i.leasePays(t, k+1, first) })
	if n > longest {
		return 0
	}
	return n
}

// longestLease is how far leasedFrom looks, in bytes.
const longestLease = 1 << 30

// Invalidate deregisters what operations of this worker have registered of memory, all of it or
// parts. Call it before memory is unmapped or remapped, and before the Mem of [Context.MemAlloc]
// that it lies in is closed. Memory of the Go heap needs no call. ErrBusy while operations use
// it: call it again when they have ended. Other errors are those of deregistering.
func (w *Worker) Invalidate(memory []byte) error {
	return w.transfers.leases.each(func(c *regCache) error { return c.Invalidate(memory) })
}

// Purge deregisters all memory that operations of this worker have registered and that no
// operation uses, so that what of it lies on the Go heap can be collected. The error is that of
// deregistering.
func (w *Worker) Purge() error { return w.transfers.leases.each((*regCache).Purge) }

// each calls f with each cache, and joins the errors.
func (l regCaches) each(f func(*regCache) error) error {
	var errs []error
	for _, c := range l {
		if c != nil {
			errs = append(errs, f(c))
		}
	}
	return ucs.Join(errs...)
}

// closeLeases deregisters what operations have registered, which have ended. Where a peer is
// in the middle of an access the context tries again when it closes.
func (w *Worker) closeLeases() {
	for _, c := range w.transfers.leases {
		if c != nil && c.Close() != nil {
			w.ctx.keep(c)
		}
	}
}

// addCache adds the counters of a cache: "worker/rcache@sm.hits".
func (s *workerStats) addCache(component, name string, c *regCache) {
	at := "rcache@" + component
	if name != component {
		at += "/" + name
	}
	c.AddStats(s.root.Child(at))
}

// moveAt is how n bytes move, at those costs. first is the variant that is proto.Short, which
// proto.Bcopy and proto.Zcopy follow.
func moveAt(costs *uct.Costs, t *proto.Table, n int, first uct.Variant) (m proto.Move) {
	way := t.Find(n)
	if way.Protocol == proto.None {
		return m
	}
	return proto.Move{Cost: costs[first+uct.Variant(way.Protocol-proto.Short)], Piece: way.Piece}
}
