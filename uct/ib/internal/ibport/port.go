package ibport

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Port is the port of an iface.
type Port struct {
	Num  uint8
	Name string // in uct.Resource: "softhca0:1"
	Attr verbs.PortAttr
	Addr DeviceAddr
	Path ib.PathConfig

	ctx      *verbs.Context
	gidIndex uint8  // index of Addr.GID
	gidWhy   string // reason of the choice; "" if there was no choice
}

// Open queries a port of md. ErrUnreachable if it is not active.
func Open(md *ib.MD, num uint8, path ib.PathConfig) (*Port, error) {
	p := &Port{Num: num, Name: md.Attr().Name + ":" + strconv.Itoa(int(num)), Path: path, ctx: md.Context()}
	opError := func(op string, err error) error {
		return &ucs.OpError{TL: md.Attr().Component, Dev: p.Name, Op: op, Err: err}
	}
	var err error
	if p.Attr, err = p.ctx.QueryPort(num); err != nil {
		return nil, opError("query port", err)
	}
	if p.Attr.State != verbs.PortActive {
		return nil, opError("open port", fmt.Errorf("%w: port is %s", uct.ErrUnreachable, portState(p.Attr.State)))
	}
	gid, why, err := openGID(p.ctx, num, path.GIDIndex, p.Attr.Ethernet)
	if err != nil {
		return nil, opError("query gid", err)
	}
	p.gidIndex, p.gidWhy = gid.Index, why
	p.Addr = DeviceAddr{Ethernet: p.Attr.Ethernet, LID: p.Attr.LID, GID: gid.GID}
	if p.Attr.Ethernet {
		p.Addr.LID = 0
	}
	return p, nil
}

// portState returns the name of a state for errors, by enum ibv_port_state.
func portState(s verbs.PortState) string {
	names := [...]string{"NOP", "down", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("in state %d", s)
}

// FailureCause returns err, the error of a failed work request, with the state of the port if it is
// not active. It queries the device.
func (p *Port) FailureCause(err error) error {
	if a, queryErr := p.ctx.QueryPort(p.Num); queryErr == nil && a.State != verbs.PortActive {
		return fmt.Errorf("%w: port is %s", err, portState(a.State))
	}
	return err
}

// Peer decodes a device address and checks that it is reachable. Errors: ErrInvalidAddr,
// ErrUnreachable with the reason.
func (p *Port) Peer(deviceAddr []byte) (DeviceAddr, error) {
	a, err := ParseDeviceAddr(deviceAddr)
	if err != nil {
		return a, err
	}
	return a, p.Reach(a)
}

// Reach returns ErrUnreachable with the reason if peer is not reachable.
func (p *Port) Reach(peer DeviceAddr) error {
	if why := p.Addr.reach(peer); why != "" {
		return fmt.Errorf("%w: %s", uct.ErrUnreachable, why)
	}
	return nil
}

// hopLimit is the hop limit of routed packets, the usual default of IP (RFC 1700).
const hopLimit = 64

// AH returns the attributes of an address handle for peer on this port.
func (p *Port) AH(peer DeviceAddr) verbs.AHAttr {
	a := verbs.AHAttr{Port: p.Num, SL: p.Path.SL, DLID: peer.LID}
	if peer.Ethernet {
		a.Global = true
		a.DGID = peer.GID
		a.SGIDIndex = p.gidIndex
		a.HopLimit = hopLimit
		a.TrafficClass = p.Path.TrafficClass
	}
	return a
}

// Costs returns the cost model of a port for a transport whose posts take overhead. The latencies
// are those of current adapters. Zcopy operations have a completion, and the result of a get or
// atomic takes another overhead. The CPU of the target takes part only in messages.
func (p *Port) Costs(overhead time.Duration) (cs uct.Costs) {
	latency := 600 * time.Nanosecond
	if p.Attr.Ethernet {
		latency += 200 * time.Nanosecond
	}
	link := p.Attr.SpeedGbps * 1e9 / 8
	short := uct.Cost{Send: overhead, Latency: latency, Bandwidth: uint64(link), SharedBandwidth: uint64(link)}
	bcopy, zcopy := short, short
	bcopy.Send += copyOverhead
	bcopy.Bandwidth = uint64(link * copyRate / (link + copyRate))
	zcopy.Send += completionOverhead
	for i, c := range []uct.Cost{short, bcopy, zcopy} {
		v := uct.Variant(i)
		cs.Set(c, uct.PutShort+v)
		c.Recv = overhead
		cs.Set(c, uct.AMShort+v)
	}
	bcopy.Send, bcopy.Latency, zcopy.Latency = bcopy.Send+overhead, 2*latency, 2*latency
	cs.Set(bcopy, uct.GetBcopy)
	cs.Set(zcopy, uct.GetZcopy)
	cs.Set(uct.Cost{Send: 2 * overhead, Latency: 2 * latency}, uct.AtomicPost, uct.AtomicFetch)
	return cs
}

// Additional costs of copies and completions, from experiment 0086 in docs/perf.
const (
	copyOverhead       = 20 * time.Nanosecond
	copyRate           = 100e9 // bytes per second
	completionOverhead = 25 * time.Nanosecond
)

// AckTimeoutCode returns the smallest code of verbs.AckTimeout, 1 to 31, with a timeout of at least
// d. For d <= 0 it returns 0, which means no timeout.
func AckTimeoutCode(d time.Duration) uint8 {
	if d <= 0 {
		return 0
	}
	units := (uint64(d) + 4095) / 4096
	return uint8(min(max(bits.Len64(units-1), 1), 31))
}

// rnrTimers contains the RNR NAK timers by code, in units of 10 us. Code 0 is the longest (IBTA
// volume 1, 9.7.5.2.8, table 45).
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimerCode returns the code of the shortest RNR timer of at least d.
func RNRTimerCode(d time.Duration) uint8 {
	for code := 1; code < len(rnrTimers); code++ {
		if time.Duration(rnrTimers[code])*10*time.Microsecond >= d {
			return uint8(code)
		}
	}
	return 0
}
