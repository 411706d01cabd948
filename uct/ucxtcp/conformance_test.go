package ucxtcp

import (
	"testing"
	"time"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

func openMD() (uct.MD, error) { return New(Config{Devices: []string{allDevices}}).OpenMD(Name) }

// tiny is the configuration of the suite: buffers, also of sockets, for a few messages only, so
// that they become full. The linger time is short, as some peers do not read. The address format is
// narrow, because the suite truncates addresses, and a truncated wide address would be a valid
// narrow one.
func tiny(o ucttest.Options) any {
	return Config{TxSegSize: 1 << 10, MaxFrame: 2 << 10, TxOps: max(o.TxDepth, 4), SendvThresh: 64, SndBuf: 4 << 10,
		RcvBuf: config.MemSize(4 << 10), TxBuf: 1, Linger: 500 * time.Millisecond, LoopbackAddr: addrNarrow}
}

// harness runs the suite over interface connections. It skips the checks of put, get, atomics, keys
// and registered memory, because the transport has active messages only.
func harness() ucttest.Harness {
	return ucttest.Harness{OpenMD: openMD, Transport: Name, Device: "lo", Config: tiny, StartPeer: ucttest.ExecPeer("ucxtcp")}
}

// endpointMD is an MD whose ifaces have no interface connections, so that the suite uses endpoint
// connections.
type endpointMD struct{ uct.MD }

type endpointIface struct {
	uct.Iface
	attr uct.IfaceAttr
}

func (md endpointMD) OpenIface(p uct.IfaceParams) (uct.Iface, error) {
	it, err := md.MD.OpenIface(p)
	if err != nil {
		return nil, err
	}
	e := &endpointIface{Iface: it, attr: *it.Attr()}
	e.attr.Caps &^= uct.CapConnectIface
	e.attr.IfaceAddrLen = 0
	return e, nil
}

func (it *endpointIface) Attr() *uct.IfaceAttr { return &it.attr }

// endpointHarness skips the check that an EP detects a graceful close of the peer: in UCX's
// protocol an endpoint connection has no last frame.
func endpointHarness() ucttest.Harness {
	h := harness()
	h.Except = []string{"close/peer"}
	h.OpenMD = func() (uct.MD, error) {
		md, err := openMD()
		return endpointMD{md}, err
	}
	h.StartPeer = ucttest.ExecPeer("ucxtcp-endpoint")
	return h
}

func TestMain(m *testing.M) {
	ucttest.PeerMain(map[string]ucttest.Harness{"ucxtcp": harness(), "ucxtcp-endpoint": endpointHarness()})
	testenv.Main(m)
}

func TestConformance(t *testing.T) { ucttest.Test(t, harness()) }

func TestConformance_EndpointConnections(t *testing.T) { ucttest.Test(t, endpointHarness()) }
