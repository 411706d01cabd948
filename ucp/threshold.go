package ucp

import (
	"strconv"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// copies is what messages take over the transport that are copied. Where a device or the kernel
// moves the bytes, processors of both sides copy around that; between processors that share memory
// the copies are all there is.
func (i *iface) copies() proto.Eager {
	s, costs := i.sends(), &i.costs().Costs
	m := costs[uct.AMBcopy]
	if i.attr.Resource.Kind != uct.DeviceNet || i.measure != nil {
		return proto.Copies(m, 0, 0, s.eager, s.piece)
	}
	link := m.Bandwidth
	for _, v := range []uct.Variant{uct.AMZcopy, uct.PutZcopy, uct.GetZcopy} {
		if v.Claimed(i.attr) {
			link = max(link, costs[v].Bandwidth)
		}
	}
	return proto.Copies(m, link, i.w.ctx.cfg.copyRate(), s.eager, s.piece)
}

// declaredCopies is what a processor copies in its caches if that is not to be measured, in bytes
// per second.
const declaredCopies = 12e9

// copyRate is what a processor copies in its caches, in bytes per second.
func (c *Config) copyRate() uint64 {
	if c.Costs == CostsDeclared {
		return declaredCopies
	}
	return bulk.Measure()
}

// announcedFrom is the least length from which messages are announced whose data is in mem, which
// may be nil, of those that do not go in one call. By cost, if Config.RndvThresh does not say.
func (e *EP) announcedFrom(mem *Mem) *proto.Threshold {
	m, k := e.messaging(), unregistered
	if i := e.transport(wireup.RMA); i != nil && mem != nil && mem.AllocatedBy(i.domain) {
		k = registered
	}
	if m.from[k].From == 0 {
		m.from[k] = e.threshold(k == registered)
	}
	return &m.from[k]
}

// threshold chooses it for buffers of which both are allocated by transports, or both are not
// registered.
func (e *EP) threshold(allocated bool) proto.Threshold {
	am, cfg := e.transport(wireup.AM), &e.w.ctx.cfg
	s := am.sends()
	if cfg.RndvThresh != config.MemAuto {
		return proto.Threshold{From: s.rndv, Why: "RNDV_THRESH=" + strconv.Itoa(s.rndv)}
	}
	tell := am.costs().Costs[uct.AMBcopy].Time(wire.HeadLen + wire.RTSLen)
	eager, least := am.copies(), s.eager+1
	if allocated {
		least = proto.ShortestAnnounced
	}
	return proto.ThresholdOf(least, s.rndv, &eager, tell, func(n int) uint64 {
		v := e.ways(n, e.reachOf(n, allocated))
		return v.Time(n, v.Choose(n, cfg.rndvScheme()))
	})
}

// forgetChoices has thresholds and schemes be chosen anew: the EP has other lanes.
func (e *EP) forgetChoices() {
	if e.msgs != nil {
		e.msgs.from, e.msgs.choice = [2]proto.Threshold{}, schemeChoice{}
	}
}
