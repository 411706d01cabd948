package dv

import (
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rctest"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// openMD opens an MD on a software device of its own on the given fabric.
func openMD(fabric softhca.Fabric, more ...ib.Transport) (uct.MD, error) {
	return openMDWith(fabric, append(more, RC(RCConfig{}), UD(UDConfig{}))...)
}

func openMDWith(fabric softhca.Fabric, transports ...ib.Transport) (uct.MD, error) {
	dev, err := softhca.NewDevice(softhca.Config{Name: "dev", Fabric: fabric})
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	return ib.New(list, transports...).OpenMD("dev")
}

// shortTimeout is that of one of eight attempts to reach a QP that is gone.
const shortTimeout = 100 * time.Millisecond

// minRxDepth is the least that the configuration takes.
const minRxDepth = 4

// tinyRC is the configuration of the suite: queues of a few messages.
func tinyRC(o ucttest.Options) any {
	c := rc.Config{TxDepth: o.TxDepth, RxDepth: o.RxDepth, SegSize: config.MemSize(1 << 10), Timeout: shortTimeout}
	if o.RxDepth > 0 {
		c.RxDepth = max(o.RxDepth, minRxDepth)
	}
	return c
}

func rcHarness(fabric softhca.Fabric) ucttest.Harness {
	return ucttest.Harness{
		OpenMD:    func() (uct.MD, error) { return openMD(fabric) },
		SharedMD:  fabric == softhca.FabricLoop,
		Transport: RCName,
		Config:    tinyRC,
	}
}

func rcShmHarness() ucttest.Harness {
	h := rcHarness(softhca.FabricShm)
	h.StartPeer = ucttest.ExecPeer("rc-shm")
	h.OneSided = true
	return h
}

// postlist is longer than most queues of the suite, so that most posts wait for
// what else makes a doorbell ring.
const postlist = 32

// listHarness is h with posts in lists.
func listHarness(h ucttest.Harness) ucttest.Harness {
	plain := h.Config
	h.Config = func(o ucttest.Options) any {
		if c, ok := plain(o).(ud.Config); ok {
			return UDConfig{Config: c, TxPostlist: postlist}
		}
		return &RCConfig{Config: plain(o).(rc.Config), TxPostlist: postlist}
	}
	return h
}

func listShmHarness() ucttest.Harness {
	h := listHarness(rcShmHarness())
	h.StartPeer = ucttest.ExecPeer("list-shm")
	return h
}

// udTimeout is when a killed peer is given up: long for a busy machine, and not as
// long as a test.
const udTimeout = 10 * time.Second

// tinyUD is tinyRC for datagrams.
func tinyUD(o ucttest.Options) any {
	c := ud.Config{TxDepth: o.TxDepth, Window: o.TxDepth, RxDepth: o.RxDepth, Timeout: udTimeout}
	if o.RxDepth > 0 {
		c.RxDepth = max(o.RxDepth, minRxDepth)
	}
	return c
}

func udHarness(fabric softhca.Fabric) ucttest.Harness {
	h := rcHarness(fabric)
	h.Transport, h.Config = UDName, tinyUD
	return h
}

func udShmHarness() ucttest.Harness {
	h := udHarness(softhca.FabricShm)
	h.StartPeer = ucttest.ExecPeer("ud-shm")
	return h
}

func peerHarness() rctest.Harness {
	return rctest.Harness{OpenMD: rcShmHarness().OpenMD, Transport: RCName, Device: "dev:1"}
}

func listPeerHarness() rctest.Harness {
	h := peerHarness()
	h.OpenMD = func() (uct.MD, error) {
		return openMDWith(softhca.FabricShm, RC(RCConfig{TxPostlist: postlist}))
	}
	return h
}

func TestMain(m *testing.M) {
	if rctest.TargetMain(peerHarness()) {
		return
	}
	ucttest.PeerMain(map[string]ucttest.Harness{"rc-shm": rcShmHarness(), "list-shm": listShmHarness(), "ud-shm": udShmHarness()})
	os.Exit(m.Run())
}

func TestConformanceRC_Loop(t *testing.T) { ucttest.Test(t, rcHarness(softhca.FabricLoop)) }

func TestConformanceRC_Shm(t *testing.T) { ucttest.Test(t, rcShmHarness()) }

func TestConformanceRC_ListLoop(t *testing.T) {
	ucttest.Test(t, listHarness(rcHarness(softhca.FabricLoop)))
}

func TestConformanceRC_ListShm(t *testing.T) { ucttest.Test(t, listShmHarness()) }

func TestConformanceUD_Loop(t *testing.T) { ucttest.Test(t, udHarness(softhca.FabricLoop)) }

func TestConformanceUD_ListLoop(t *testing.T) {
	ucttest.Test(t, listHarness(udHarness(softhca.FabricLoop)))
}

func TestConformanceUD_Shm(t *testing.T) { ucttest.Test(t, udShmHarness()) }

func TestPeerRC(t *testing.T) { rctest.Test(t, peerHarness()) }

func TestPeerRC_List(t *testing.T) { rctest.Test(t, listPeerHarness()) }

// Each side has a memory domain of its own, as categories with one owner want.
func TestConformance_Categories(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a suite for each category")
	}
	for e := uct.EndpointsMPIEverywhere; e.Valid(); e++ {
		if e == uct.EndpointsDynamic {
			continue // the default
		}
		t.Run(e.String(), func(t *testing.T) {
			for _, h := range []ucttest.Harness{rcHarness(softhca.FabricShm), udHarness(softhca.FabricShm)} {
				t.Run(h.Transport, func(t *testing.T) {
					plain := h.Config
					h.Config = func(o ucttest.Options) any { return inCategory(plain(o), e) }
					ucttest.Test(t, h)
				})
			}
		})
	}
}

func inCategory(config any, e uct.Endpoints) any {
	switch c := config.(type) {
	case rc.Config:
		c.IB.Endpoints = e
		return c
	case ud.Config:
		c.IB.Endpoints = e
		return c
	}
	return config
}
