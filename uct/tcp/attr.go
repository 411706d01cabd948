package tcp

import (
	"time"

	"github.com/gucx/gucx/uct"
)

// Cost model, measured with two pinned processes over loopback (experiment 0124 in docs/perf). A
// network adds the latency of a switch and two NICs and limits the bandwidth to that of the link.
const (
	loopbackLatency   = 3500 * time.Nanosecond
	networkLatency    = 15 * time.Microsecond
	overhead          = time.Microsecond // per message; less in a stream, where messages share system calls
	loopbackBandwidth = 8e9              // bytes per second
	// Link speed if the system does not know it; most such devices are virtual.
	fallbackMbits = 10_000
	// Payload fraction of the link speed with Ethernet, IP and TCP headers at an MTU of 1,500 B.
	payloadShare = 0.94
)

const caps = uct.CapAM | uct.CapPut | uct.CapGetBcopy | uct.CapGetZcopy | uct.CapAtomic |
	uct.CapPending | uct.CapConnectIface | uct.CapErrPeer | uct.CapErrPeerIdle | uct.CapErrRemoteMem |
	uct.CapEventFD

func (it *iface) fillAttr() {
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

// costs returns the costs of a device. The CPU of the target executes all operations.
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
	bothWays.Send, bothWays.Latency = 2*overhead, 2*latency // the initiator also receives the reply
	cs.Set(oneWay, uct.AMShort, uct.AMBcopy, uct.AMZcopy, uct.PutShort, uct.PutBcopy, uct.PutZcopy)
	cs.Set(bothWays, uct.GetBcopy, uct.GetZcopy)
	oneWay.Bandwidth, oneWay.SharedBandwidth, bothWays.Bandwidth, bothWays.SharedBandwidth = 0, 0, 0, 0
	cs.Set(oneWay, uct.AtomicPost)
	cs.Set(bothWays, uct.AtomicFetch)
	return cs
}
