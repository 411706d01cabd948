package dv

import (
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rctest"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// postlist is longer than most queues of the suite, so that most doorbells have another cause than
// a full list.
const postlist = 32

func tinyRC(o ucttest.Options) rc.Config {
	return rc.Config{TxDepth: o.TxDepth, TxCQDepth: ibtest.CQDepth, RxDepth: ibtest.RxDepth(o), SegSize: 1 << 10}
}

func tinyUD(o ucttest.Options) ud.Config {
	return ud.Config{TxDepth: o.TxDepth, Window: o.TxDepth, RxDepth: ibtest.RxDepth(o), Timeout: ibtest.UDTimeout(o)}
}

// The suites have queues for a few messages.
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
	peers = rctest.Harness{OpenMD: rcSuite.On(softhca.FabricShm).OpenMD, Transport: RCName, Device: ibtest.Device,
		Config: rc.Config{Timeout: time.Hour}}
	listPeers = rctest.Harness{OpenMD: rcSuite.On(softhca.FabricShm).OpenMD, Transport: RCName, Device: ibtest.Device,
		Config: &RCConfig{Config: rc.Config{Timeout: time.Hour}, TxPostlist: postlist}}
)

func TestMain(m *testing.M) {
	if rctest.TargetMain(peers) {
		return
	}
	ucttest.PeerMain(map[string]ucttest.Harness{
		rcPeer: rcSuite.Peers(rcPeer), rcListPeer: rcListSuite.Peers(rcListPeer), udPeer: udSuite.Peers(udPeer),
		xrcPeer: xrcSuite.Peers(xrcPeer), xrcNodePeer: xrcNodeSuite.Peers(xrcNodePeer),
		xrcHostPeer: xrcHostSuite.Peers(xrcHostPeer),
	})
	os.Exit(m.Run())
}

func TestConformanceRC_Loop(t *testing.T) {
	testenv.SkipSweep(t, "a suite; the one over shm and that of xrc_mlx5 over this fabric cover it")
	ucttest.Test(t, rcSuite.On(softhca.FabricLoop))
}

func TestConformanceRC_Shm(t *testing.T) {
	testenv.SkipShort(t, "a suite; the one with lists covers it")
	ucttest.Test(t, rcSuite.Peers(rcPeer))
}

func TestConformanceRC_ListLoop(t *testing.T) {
	testenv.SkipSweep(t, listsOverShm)
	ucttest.Test(t, rcListSuite.On(softhca.FabricLoop))
}

const listsOverShm = "a suite; the one with lists over shm and that of xrc_mlx5 over this fabric cover it"

func TestConformanceRC_ListShm(t *testing.T) {
	ucttest.Test(t, ibtest.Brief(rcListSuite.Peers(rcListPeer)))
}

func TestConformanceRC_Categories(t *testing.T) {
	testenv.SkipSweep(t, categories)
	rcSuite.Categories(t, true, func(config any, e ib.Endpoints) any {
		c := config.(rc.Config)
		c.IB.Endpoints = e
		return c
	})
}

func TestConformanceUD_Loop(t *testing.T) { ucttest.Test(t, udSuite.On(softhca.FabricLoop)) }

func TestConformanceUD_ListLoop(t *testing.T) {
	testenv.SkipShort(t, "a suite; the one without lists covers it")
	ucttest.Test(t, udListSuite.On(softhca.FabricLoop))
}

func TestConformanceUD_Shm(t *testing.T) {
	testenv.SkipShort(t, "a suite; the one over another fabric covers it")
	ucttest.Test(t, udSuite.Peers(udPeer))
}

const categories = "a suite for each category; those of rc and the default one of this package cover them"

func TestConformanceUD_Categories(t *testing.T) {
	testenv.SkipSweep(t, categories)
	udSuite.Categories(t, true, func(config any, e ib.Endpoints) any {
		c := config.(ud.Config)
		c.IB.Endpoints = e
		return c
	})
}

func TestPeerRC(t *testing.T) { rctest.Test(t, peers) }

func TestPeerRC_List(t *testing.T) { rctest.Test(t, listPeers) }
