package tcp

import (
	"time"

	"github.com/gucx/gucx/uct"
)

// Cost model. Measured with two pinned processes over loopback (experiment 0124 in docs/perf); a
// network adds a switch and two NICs, and is as fast as its link says.
const (
	loopbackLatency   = 3500 * time.Nanosecond
	networkLatency    = 15 * time.Microsecond
	overhead          = time.Microsecond // a message of a stream takes less: they share system calls
	loopbackBandwidth = 8e9              // bytes per second
	// A link that does not tell its speed is most often that of a virtual machine.
	fallbackMbits = 10_000
	// Share of the link speed that payload gets: Ethernet, IP and TCP headers with
	// a 1500-byte MTU.
	payloadShare = 0.94
)

const caps = uct.CapAM | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapAtomic |
	uct.CapPending | uct.CapConnectIface | uct.CapErrPeer | uct.CapErrPeerIdle | uct.CapErrRemoteMem |
	uct.CapEventFD

func (it *Iface) fillAttr() {
	seg := int(it.cfg.SegSize)
	posted := uct.AtomicSet(uct.AtomicAdd, uct.AtomicAnd, uct.AtomicOr, uct.AtomicXor, uct.AtomicSwap)
	fetching := posted | uct.AtomicSet(uct.AtomicCSwap)
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
		DeviceAddrLen: len(it.DeviceAddr(nil)),
		IfaceAddrLen:  ifaceLen,
	}
	if !it.dev.loopback {
		it.attr.Caps |= uct.CapInterNode
	}
	it.attr.Declare(it.dev.costs())
}

// costs declares what a device costs. The target executes everything.
func (d *device) costs() (cs uct.Costs) {
	latency, bw, shared := loopbackLatency-2*overhead, uint64(loopbackBandwidth), uint64(0)
	if !d.loopback {
		mbits := d.mbits
		if mbits == 0 {
			mbits = fallbackMbits
		}
		bw = uint64(float64(mbits) * 1e6 / 8 * payloadShare)
		latency, shared = networkLatency, bw
	}
	oneWay := uct.Cost{Send: overhead, Recv: overhead, Latency: latency, Bandwidth: bw, SharedBandwidth: shared}
	bothWays := oneWay
	bothWays.Send, bothWays.Latency = 2*overhead, 2*latency // the answer is received
	cs.Set(oneWay, uct.AMShort, uct.AMBcopy, uct.AMZcopy, uct.PutShort, uct.PutBcopy, uct.PutZcopy)
	cs.Set(bothWays, uct.GetBcopy, uct.GetZcopy)
	oneWay.Bandwidth, oneWay.SharedBandwidth, bothWays.Bandwidth, bothWays.SharedBandwidth = 0, 0, 0, 0
	cs.Set(oneWay, uct.AtomicPost)
	cs.Set(bothWays, uct.AtomicFetch)
	return cs
}
