package rc

import (
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/rctest"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// openMD opens an MD on a software device of its own on the given fabric.
func openMD(fabric softhca.Fabric) (uct.MD, error) {
	dev, err := softhca.NewDevice(softhca.Config{Name: "dev", Fabric: fabric})
	if err != nil {
		return nil, err
	}
	list := func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }
	return ib.New(list, Transport(Config{})).OpenMD("dev")
}

// shortTimeout is that of one of eight attempts to reach a QP that is gone.
const shortTimeout = 100 * time.Millisecond

// minRxDepth is the least that the configuration takes.
const minRxDepth = 4

// tiny is the configuration of the suite: queues of a few messages.
func tiny(o ucttest.Options) any {
	c := Config{TxDepth: o.TxDepth, RxDepth: o.RxDepth, SegSize: config.MemSize(1 << 10), Timeout: shortTimeout}
	if o.RxDepth > 0 {
		c.RxDepth = max(o.RxDepth, minRxDepth)
	}
	return c
}

func harness(fabric softhca.Fabric) ucttest.Harness {
	return ucttest.Harness{
		OpenMD:    func() (uct.MD, error) { return openMD(fabric) },
		SharedMD:  fabric == softhca.FabricLoop,
		Transport: Name,
		Config:    tiny,
	}
}

func shmHarness() ucttest.Harness {
	h := harness(softhca.FabricShm)
	h.StartPeer = ucttest.ExecPeer("rc-shm")
	h.OneSided = true
	return h
}

func peerHarness() rctest.Harness {
	return rctest.Harness{OpenMD: shmHarness().OpenMD, Transport: Name, Device: "dev:1"}
}

func TestMain(m *testing.M) {
	if rctest.TargetMain(peerHarness()) {
		return
	}
	ucttest.PeerMain(map[string]ucttest.Harness{"rc-shm": shmHarness()})
	os.Exit(m.Run())
}

func TestConformance_Loop(t *testing.T) { ucttest.Test(t, harness(softhca.FabricLoop)) }

func TestConformance_Shm(t *testing.T) { ucttest.Test(t, shmHarness()) }

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
			h := harness(softhca.FabricShm)
			h.Config = func(o ucttest.Options) any {
				c := tiny(o).(Config)
				c.IB.Endpoints = e
				return c
			}
			ucttest.Test(t, h)
		})
	}
}

func TestPeer(t *testing.T) { rctest.Test(t, peerHarness()) }
