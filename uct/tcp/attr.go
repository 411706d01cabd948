package tcp

import (
	"time"

	"github.com/gucx/gucx/uct"
)

// Cost model. Measured with two pinned processes over loopback; a network adds a
// switch and two NICs, and is as fast as its link says.
const (
	loopbackLatency   = 3500 * time.Nanosecond
	networkLatency    = 15 * time.Microsecond
	latencyPerEP      = time.Nanosecond
	overhead          = time.Microsecond
	loopbackBandwidth = 8e9 // bytes per second
	// A link that does not tell its speed is most often that of a virtual machine.
	fallbackMbits = 10_000
	// Share of the link speed that payload gets: Ethernet, IP and TCP headers with
	// a 1500-byte MTU.
	payloadShare = 0.94
)

const caps = uct.CapAM | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapAtomic |
	uct.CapPending | uct.CapConnectIface | uct.CapErrPeer | uct.CapErrRemoteMem | uct.CapEventFD

func (it *Iface) fillAttr() {
	seg := int(it.cfg.SegSize)
	posted := uct.Ops(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap)
	fetching := posted | uct.Ops(uct.AtomicCSwap)
	it.attr = uct.IfaceAttr{
		Resource: uct.Resource{Transport: Name, Device: it.dev.name, Kind: uct.DeviceNet},
		Caps:     caps,
		AM: uct.OpLimits{
			MaxShort: min(seg, maxShort), MaxBcopy: seg, MaxZcopy: it.maxAM, MaxIOV: maxIOV, MaxHeader: maxAMHeader,
		},
		Put: uct.OpLimits{MaxShort: min(seg, maxShort), MaxBcopy: seg, MaxZcopy: maxRMA, MaxIOV: maxIOV},
		Get: uct.OpLimits{MaxBcopy: seg, MaxZcopy: maxRMA, MaxIOV: maxIOV},
		Atomic: uct.AtomicAttr{
			Post32: posted, Post64: posted, Fetch32: fetching, Fetch64: fetching, Domain: uct.AtomicCPU,
		},
		DeviceAddrLen: deviceLen,
		IfaceAddrLen:  ifaceLen,
		Perf:          it.dev.perf(),
		MaxEPs:        it.cfg.MaxConns,
	}
	if !it.dev.loopback {
		it.attr.Caps |= uct.CapInterNode
	}
}

// perf declares what a device costs.
func (d *device) perf() uct.Perf {
	p := uct.Perf{Latency: loopbackLatency, LatencyPerEP: latencyPerEP, Overhead: overhead, Bandwidth: loopbackBandwidth}
	if d.loopback {
		return p
	}
	mbits := d.mbits
	if mbits == 0 {
		mbits = fallbackMbits
	}
	p.Latency = networkLatency
	p.Bandwidth = float64(mbits) * 1e6 / 8 * payloadShare
	p.SharedBandwidth = p.Bandwidth
	return p
}
