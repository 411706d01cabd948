package xrccore

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
	"github.com/gucx/gucx/uct/ib/internal/rctest"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

// suite is the conformance suite with small queues.
var suite = ibtest.Suite{
	Transport: testTransport(),
	Config: func(o ucttest.Options) any {
		return Config{Config: rccore.Config{TxDepth: o.TxDepth, TxCQDepth: ibtest.CQDepth, RxDepth: ibtest.RxDepth(o), SegSize: 1 << 10},
			QueueConns: 2, QueueTxDepth: 4, QueueCQDepth: 1 << 10}
	},
	OneSided: true,
}

// nodeSuite is suite with a domain that the ifaces of a memory domain share.
var nodeSuite = ibtest.Suite{
	Transport: suite.Transport,
	Config:    func(o ucttest.Options) any { return inDomain(suite.Config(o).(Config)) },
	OneSided:  true, OneSidedAM: true,
}

// hostSuite is suite with a domain that all processes of the test share: each EP connects to an iface of the own
// domain.
var hostSuite = ibtest.Suite{
	Transport: suite.Transport,
	Config:    func(o ucttest.Options) any { return onHost(suite.Config(o).(Config), os.Getenv(domainDirEnv)) },
	OneSided:  true, OneSidedAM: true,
}

// domainDirEnv is the directory of the file of the domain, for processes that a test starts.
const domainDirEnv = "GUCX_XRC_TEST_DOMAIN_DIR"

func onHost(c Config, dir string) Config {
	c.ShareDomain, c.DomainDir = ShareHost, dir
	return c
}

func inDomain(c Config) Config {
	c.ShareDomain = ShareProcess
	return c
}

const (
	shmPeer  = "xrc-shm"
	nodePeer = "xrc-node-shm"
	hostPeer = "xrc-host-shm"
)

var peers = rctest.Harness{OpenMD: suite.On(softhca.FabricShm).OpenMD, Transport: testName, Device: ibtest.Device,
	Config: Config{Config: rccore.Config{Timeout: time.Hour}}}

func TestMain(m *testing.M) {
	if rctest.TargetMain(peers) {
		return
	}
	if os.Getenv(stoppedEnv) != "" {
		if err := serveStopped(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(hostEnv) != "" {
		if err := serveHost(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ucttest.PeerMain(map[string]ucttest.Harness{shmPeer: suite.Peers(shmPeer), nodePeer: nodeSuite.Peers(nodePeer),
		hostPeer: hostSuite.Peers(hostPeer)})
	os.Exit(m.Run())
}

func TestConformance_Loop(t *testing.T) { ucttest.Test(t, ibtest.Brief(suite.On(softhca.FabricLoop))) }

func TestConformance_Shm(t *testing.T) {
	testenv.SkipShort(t, "a suite; that with a domain of the host stands for it")
	ucttest.Test(t, suite.Peers(shmPeer))
}

func TestConformance_NodeLoop(t *testing.T) {
	testenv.SkipSweep(t, "a suite; that over shm stands for it")
	ucttest.Test(t, nodeSuite.On(softhca.FabricLoop))
}

func TestConformance_NodeShm(t *testing.T) {
	testenv.SkipShort(t, "a suite; that with a domain of the host stands for it")
	ucttest.Test(t, ibtest.Brief(nodeSuite.Peers(nodePeer)))
}

func TestConformance_HostShm(t *testing.T) {
	t.Setenv(domainDirEnv, t.TempDir())
	ucttest.Test(t, ibtest.Brief(hostSuite.Peers(hostPeer)))
}

func TestConformance_Categories(t *testing.T) {
	testenv.SkipSweep(t, "a suite for each category; those of rc, and that of the default here, stand for them")
	suite.Categories(t, true, func(config any, e ib.Endpoints) any {
		c := config.(Config)
		c.IB.Endpoints = e
		return c
	})
}

func TestPeer(t *testing.T) { rctest.Test(t, peers) }
