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

// tiny is the configuration of the suite: buffers of a few messages, of the
// sockets too, so that they fill. Ifaces whose peers take nothing close soon. The first bytes of a wide device
// address are a narrow one, which the suite takes for a truncated address.
func tiny(o ucttest.Options) any {
	return Config{TxSegSize: 1 << 10, MaxFrame: 2 << 10, TxOps: max(o.TxDepth, 4), SendvThresh: 64, SndBuf: 4 << 10,
		RcvBuf: config.MemSize(4 << 10), TxBuf: 1, Linger: 500 * time.Millisecond, LoopbackAddr: addrNarrow}
}

// harness runs the suite over interface connections. Checks of put, get, atomics, keys and registered
// memory are skipped: the transport has messages only, as UCX's protocols need no more of it.
func harness() ucttest.Harness {
	return ucttest.Harness{OpenMD: openMD, Transport: Name, Device: "lo", Config: tiny, StartPeer: ucttest.ExecPeer("ucxtcp")}
}

// endpointMD is an MD whose ifaces have no interface connections, so that the suite uses endpoint connections.
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

// endpointHarness leaves out the check that an EP notices that its peer has closed in order: an endpoint connection ends
// without a last frame in UCX's protocol.
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
