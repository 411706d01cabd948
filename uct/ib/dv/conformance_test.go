package dv

import (
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rctest"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

const (
	// rcTimeout is that of one of eight attempts to reach a QP that is gone.
	rcTimeout = 100 * time.Millisecond
	// udTimeout is when a killed peer is given up: long for a busy machine, and not as
	// long as a test.
	udTimeout = 10 * time.Second
	// postlist is longer than most queues of the suite, so that most posts wait for
	// what else makes a doorbell ring.
	postlist = 32
)

func tinyRC(o ucttest.Options) rc.Config {
	return rc.Config{TxDepth: o.TxDepth, RxDepth: ibtest.RxDepth(o), SegSize: 1 << 10, Timeout: rcTimeout}
}

func tinyUD(o ucttest.Options) ud.Config {
	return ud.Config{TxDepth: o.TxDepth, Window: o.TxDepth, RxDepth: ibtest.RxDepth(o), Timeout: udTimeout}
}

// The suites have queues of a few messages.
var (
	rcSuite = ibtest.Suite{
		Transport: RC(RCConfig{}),
		Config:    func(o ucttest.Options) any { return tinyRC(o) },
		OneSided:  true,
	}
	rcListSuite = ibtest.Suite{
		Transport: RC(RCConfig{}),
		Config:    func(o ucttest.Options) any { return &RCConfig{Config: tinyRC(o), TxPostlist: postlist} },
		OneSided:  true,
	}
	udSuite = ibtest.Suite{
		Transport: UD(UDConfig{}),
		Config:    func(o ucttest.Options) any { return tinyUD(o) },
	}
	udListSuite = ibtest.Suite{
		Transport: UD(UDConfig{}),
		Config:    func(o ucttest.Options) any { return UDConfig{Config: tinyUD(o), TxPostlist: postlist} },
	}
)

// Names of peers.
const (
	rcPeer     = "rc-shm"
	rcListPeer = "list-shm"
	udPeer     = "ud-shm"
)

var (
	peers     = rctest.Harness{OpenMD: rcSuite.On(softhca.FabricShm).OpenMD, Transport: RCName, Device: ibtest.Device}
	listPeers = rctest.Harness{Transport: RCName, Device: ibtest.Device, OpenMD: func() (uct.MD, error) {
		return ibtest.OpenMD(softhca.FabricShm, RC(RCConfig{TxPostlist: postlist}))
	}}
)

func TestMain(m *testing.M) {
	if rctest.TargetMain(peers) {
		return
	}
	ucttest.PeerMain(map[string]ucttest.Harness{
		rcPeer: rcSuite.Peers(rcPeer), rcListPeer: rcListSuite.Peers(rcListPeer), udPeer: udSuite.Peers(udPeer),
	})
	os.Exit(m.Run())
}

func TestConformanceRC_Loop(t *testing.T) { ucttest.Test(t, rcSuite.On(softhca.FabricLoop)) }

func TestConformanceRC_Shm(t *testing.T) { ucttest.Test(t, rcSuite.Peers(rcPeer)) }

func TestConformanceRC_ListLoop(t *testing.T) { ucttest.Test(t, rcListSuite.On(softhca.FabricLoop)) }

func TestConformanceRC_ListShm(t *testing.T) { ucttest.Test(t, rcListSuite.Peers(rcListPeer)) }

func TestConformanceRC_Categories(t *testing.T) {
	rcSuite.Categories(t, func(config any, e uct.Endpoints) any {
		c := config.(rc.Config)
		c.IB.Endpoints = e
		return c
	})
}

func TestConformanceUD_Loop(t *testing.T) { ucttest.Test(t, udSuite.On(softhca.FabricLoop)) }

func TestConformanceUD_ListLoop(t *testing.T) { ucttest.Test(t, udListSuite.On(softhca.FabricLoop)) }

func TestConformanceUD_Shm(t *testing.T) { ucttest.Test(t, udSuite.Peers(udPeer)) }

func TestConformanceUD_Categories(t *testing.T) {
	udSuite.Categories(t, func(config any, e uct.Endpoints) any {
		c := config.(ud.Config)
		c.IB.Endpoints = e
		return c
	})
}

func TestPeerRC(t *testing.T) { rctest.Test(t, peers) }

func TestPeerRC_List(t *testing.T) { rctest.Test(t, listPeers) }
