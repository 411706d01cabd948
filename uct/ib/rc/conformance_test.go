package rc

import (
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rctest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// suite has queues for a few messages.
var suite = ibtest.Suite{
	Transport: Transport(Config{}),
	Config: func(o ucttest.Options) any {
		return Config{TxDepth: o.TxDepth, TxCQDepth: ibtest.CQDepth, RxDepth: ibtest.RxDepth(o), SegSize: 1 << 10}
	},
	OneSided: true,
}

const shmPeer = "rc-shm"

var peers = rctest.Harness{OpenMD: suite.On(softhca.FabricShm).OpenMD, Transport: Name, Device: ibtest.Device,
	Config: Config{Timeout: time.Hour}}

func TestMain(m *testing.M) {
	if rctest.TargetMain(peers) {
		return
	}
	ucttest.PeerMain(map[string]ucttest.Harness{shmPeer: suite.Peers(shmPeer)})
	os.Exit(m.Run())
}

func TestConformance_Loop(t *testing.T) {
	h := suite.On(softhca.FabricLoop)
	h.Except = testenv.UnlessSweep("limit/put") // 2 GiB, for seconds
	ucttest.Test(t, h)
}

func TestConformance_Shm(t *testing.T) { ucttest.Test(t, suite.Peers(shmPeer)) }

func TestConformance_Categories(t *testing.T) {
	testenv.SkipShort(t, "a suite for each category")
	suite.Categories(t, testenv.Sweep(), func(config any, e ib.Endpoints) any {
		c := config.(Config)
		c.IB.Endpoints = e
		return c
	})
}

func TestPeer(t *testing.T) { rctest.Test(t, peers) }
