package ucp

import (
	"strconv"

	"github.com/gucx/gucx/internal/bulk"
	"github.com/gucx/gucx/ucp/internal/proto"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// copies returns the costs of eager messages over the transport, including their copies. If a device or the kernel transfers
// the bytes, the copies by the CPUs of both sides take additional time. Between CPUs that share memory, the copies are the
// transfer.
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

// declaredCopies is the copy rate of a CPU in its caches, in bytes per second, if the configuration selects declared costs.
const declaredCopies = 12e9

// copyRate returns the rate at which a CPU copies in its caches, in bytes per second.
func (c *Config) copyRate() uint64 {
	if c.Costs == CostsDeclared {
		return declaredCopies
	}
	return bulk.Measure()
}

// memoryClass is the class of a buffer by its registration. Each class has its own threshold.
type memoryClass uint8

const (
	plainMemory     memoryClass = iota // not registered by the caller; the worker may register it for a message
	mappedMemory                       // registered by Context.MemMap: registering costs the message nothing
	allocatedMemory                    // allocated by the domain of the transport of puts and gets, which accesses it fastest
	memoryClasses
)

var memoryClassNames = [memoryClasses]string{"buffers that are not registered", "buffers of MemMap", "buffers of MemAlloc"}

// String returns the name that Explain uses.
func (c memoryClass) String() string { return memoryClassNames[c] }

// classOf returns the class of mem, which may be nil, for the transport of puts and gets.
func (e *EP) classOf(mem *region.Mem) memoryClass {
	if mem == nil {
		return plainMemory
	}
	if i := e.transport(wireup.RMA); i != nil && mem.AllocatedBy(i.domain) {
		return allocatedMemory
	}
	return mappedMemory
}

// rndvLengths are results of messages.rndvFrom; 0: not computed.
type rndvLengths [memoryClasses]int

// rndvFrom returns the length in bytes from which messages of the channel with these flags use rendezvous if their data is in
// mem, which may be nil. See rndvThreshold.
func (m *messages) rndvFrom(c rndvChannel, mem *region.Mem, f OpFlags) int {
	class, lengths := m.e.classOf(mem), &m.rndv.from
	if f&PreferThroughput != 0 {
		lengths = &m.rndv.overlapped
	}
	if n := lengths[c][class]; n > 0 {
		return n
	}
	lengths[c][class] = m.e.rndvThreshold(c, class, f&PreferThroughput != 0).From
	return lengths[c][class]
}

// withoutLatency returns the cost of one of many operations whose latencies overlap, if overlapped is set; otherwise c.
func withoutLatency(c uct.Cost, overlapped bool) uct.Cost {
	if overlapped {
		c.Latency = 0
	}
	return c
}

// rndvThreshold returns the length from which messages of the channel use rendezvous, for buffers that are both of the same
// class: Config.RndvThresh if that is set; otherwise it depends on the costs. overlapped says that latencies do not count, because
// many messages are in flight: see PreferThroughput.
func (e *EP) rndvThreshold(c rndvChannel, class memoryClass, overlapped bool) proto.Threshold {
	am, cfg := e.transport(wireup.AM), &e.w.ctx.cfg
	s := am.sends()
	if cfg.RndvThresh != config.MemAuto {
		return proto.Threshold{From: s.rndv, Why: "RNDV_THRESH=" + strconv.Itoa(s.rndv)}
	}
	tell := withoutLatency(am.costs().Costs[uct.AMBcopy], overlapped).Time(wire.HeadLen + wire.RTSLen)
	eager, least := am.copies(), s.leastRndv(c, class != plainMemory)
	eager.Cost = withoutLatency(eager.Cost, overlapped)
	t := proto.ThresholdOf(least, s.rndv, &eager, tell, func(n int) uint64 {
		v := e.rndvChoices(n, e.reachOf(n, class))
		for _, c := range []*uct.Cost{&v.Message, &v.Get.Cost, &v.Put.Cost, &v.Fragment.Cost} {
			*c = withoutLatency(*c, overlapped)
		}
		scheme := v.Choose(n, cfg.rndvScheme())
		t := v.Time(n, scheme)
		if scheme != proto.Get {
			return t
		}
		if class == plainMemory {
			t += e.transport(wireup.RMA).registeredCost(v.Get, n).Adds // the sender registers it, too
		}
		return t + uint64(v.Message.Latency)*1000 // the acknowledgement precedes the receiver's next message
	})
	if c == activeRndv && t.From == least {
		t.Why = "handlers read one fragment without a copy"
	}
	return t
}

// forgetChoices drops the chosen thresholds and schemes: the EP has other lanes.
func (e *EP) forgetChoices() {
	if e.msgs != nil {
		x := &e.msgs.rndv
		x.from, x.overlapped, x.choice = [rndvChannels]rndvLengths{}, [rndvChannels]rndvLengths{}, schemeChoice{}
	}
}

// reach describes the access of transports and peers to the data and the buffer of a message.
type reach struct {
	gettable           bool // the receiver can get the data
	unregisteredAccess bool // the transport of puts and gets reaches the buffer without a registration
	writable           bool // the peer can put to the buffer
	registered         bool // the buffer was registered and not allocated
	dataRegistered     bool // the data was not allocated either
	mayRegister        bool // the buffer may be registered for the message
}

// reachOf returns the reach of messages of n bytes from and to buffers that are both of a
// class.
func (e *EP) reachOf(n int, class memoryClass) reach {
	i, preferred := e.transport(wireup.RMA), e.w.ctx.cfg.rndvScheme()
	switch class {
	case allocatedMemory:
		return reach{gettable: preferred <= proto.Get, unregisteredAccess: true, writable: true}
	case mappedMemory:
		return reach{gettable: i != nil && preferred <= proto.Get && e.offers(n, offerRegistered),
			unregisteredAccess: true, writable: true, registered: true, dataRegistered: true}
	}
	mayRegister := i != nil && i.canRegister(n)
	return reach{mayRegister: mayRegister, dataRegistered: true, gettable: mayRegister && preferred <= proto.Get && e.offers(n, offerCached)}
}
