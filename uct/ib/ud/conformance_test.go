package ud

import (
	"os"
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// suite has windows and queues for a few messages.
var suite = ibtest.Suite{
	Transport: Transport(Config{}),
	Config: func(o ucttest.Options) any {
		return Config{TxDepth: o.TxDepth, Window: o.TxDepth, RxDepth: ibtest.RxDepth(o), Timeout: ibtest.UDTimeout(o)}
	},
}

const shmPeer = "ud-shm"

func TestMain(m *testing.M) {
	ucttest.PeerMain(map[string]ucttest.Harness{shmPeer: suite.Peers(shmPeer)})
	os.Exit(m.Run())
}

func TestConformance_Loop(t *testing.T) { ucttest.Test(t, suite.On(softhca.FabricLoop)) }

func TestConformance_Shm(t *testing.T) { ucttest.Test(t, suite.Peers(shmPeer)) }

func TestConformance_Categories(t *testing.T) {
	testenv.SkipShort(t, "a suite for each category")
	suite.Categories(t, testenv.Sweep(), func(config any, e ib.Endpoints) any {
		c := config.(Config)
		c.IB.Endpoints = e
		return c
	})
}
