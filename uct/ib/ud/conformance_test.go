package ud

import (
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
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

// tiny is the configuration of the suite: windows and queues of a few messages.
// shortTimeout is when a killed peer is given up: long for a busy machine, and not
// as long as a test.
const shortTimeout = 5 * time.Second

func tiny(o ucttest.Options) any {
	c := Config{TxDepth: o.TxDepth, Window: o.TxDepth, RxDepth: o.RxDepth, Timeout: shortTimeout}
	if o.RxDepth > 0 {
		c.RxDepth = max(o.RxDepth, 4)
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
	h.StartPeer = ucttest.ExecPeer("ud-shm")
	return h
}

func TestMain(m *testing.M) {
	ucttest.PeerMain(map[string]ucttest.Harness{"ud-shm": shmHarness()})
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
