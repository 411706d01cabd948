package ucxtcp

import (
	"time"

	"github.com/gucx/gucx/uct"
)

// Cost model of package tcp, which uses the same system calls.
const (
	overhead          = time.Microsecond
	loopbackLatency   = 3500*time.Nanosecond - 2*overhead
	networkLatency    = 15 * time.Microsecond
	loopbackBandwidth = 8e9     // bytes per second
	networkBandwidth  = 1.175e9 // 10 Gbit/s without headers
)

// maxIOV is MaxIOV of AMZcopy.
const maxIOV = 8

// maxHeader is MaxHeader of AMZcopy, in bytes.
const maxHeader = 256

const caps = uct.CapAM | uct.CapPending | uct.CapConnectIface | uct.CapConnectEP | uct.CapErrPeer |
	uct.CapEventFD

func (it *Iface) fillAttr() {
	seg := int(it.cfg.TxSegSize)
	it.attr = uct.IfaceAttr{
		Resource: uct.Resource{Transport: Name, Device: it.dev.name, Kind: uct.DeviceNet, Explicit: true},
		Caps:     caps,
		AM:       uct.OpLimits{MaxShort: seg, MaxBcopy: seg, MaxZcopy: it.maxZcopy(), MaxIOV: maxIOV, MaxHeader: maxHeader},

		DeviceAddrLen: len(it.DeviceAddr(nil)),
		IfaceAddrLen:  ifaceAddrLen,
		EPAddrLen:     epAddrLen,
	}
	cost := uct.Cost{Send: overhead, Recv: overhead, Latency: loopbackLatency, Bandwidth: loopbackBandwidth}
	if !it.dev.loopback {
		it.attr.Caps |= uct.CapInterNode
		cost.Latency, cost.Bandwidth, cost.SharedBandwidth = networkLatency, networkBandwidth, networkBandwidth
	}
	var cs uct.Costs
	cs.Set(cost, uct.AMShort, uct.AMBcopy, uct.AMZcopy)
	it.attr.Declare(cs)
}

// maxZcopy returns the maximum length of a zcopy message so that its frame fills whole packets of
// the device. The kernel sends the rest of each write as a separate packet, which costs as much as
// a full one. With this limit, a frame on loopback is one packet instead of two.
func (it *Iface) maxZcopy() int {
	frame, seg := int(it.cfg.MaxFrame), it.dev.segment()
	if seg <= 0 || frame+frameLen < seg {
		return frame
	}
	return min((frame+frameLen)/seg*seg-frameLen, frame)
}
