package connectx_test

import (
	"maps"
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/internal/mlx5/fakekernel"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/dv"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/connectx"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
	"github.com/gucx/gucx/uct/ucttest"
)

func TestMain(m *testing.M) {
	all := suites()
	maps.Copy(all, adapterSuites())
	ucttest.PeerMain(all)
	testenv.Main(m)
}

// deviceName is that of the device in the suites.
const deviceName = "mlx5_0"

// openMD opens an MD over a kernel of its own.
func openMD(cfg fakekernel.Config, tl ib.Transport) (uct.MD, error) {
	cfg.Name = deviceName
	k := fakekernel.New(cfg)
	list := func() ([]*verbs.Device, error) { return k.Devices(mlx5.Config{}) }
	return ib.New(list, tl).OpenMD(deviceName)
}

// suite is the conformance suite of a transport over a kernel.
func suite(name string, cfg fakekernel.Config, tl ib.Transport, config func(o ucttest.Options) any) ucttest.Harness {
	h := ucttest.Harness{
		OpenMD:    func() (uct.MD, error) { return openMD(cfg, tl) },
		Transport: tl.Name(),
		Device:    deviceName + ":1",
		Config:    config,
		Watchdog:  time.Minute,
		SharedMD:  cfg.Device.Fabric == softhca.FabricLoop,
	}
	if cfg.Device.Fabric == softhca.FabricShm {
		h.StartPeer = ucttest.ExecPeer(name)
	}
	return h
}

// rxDepth is the length of the receive queue for o; 0, the default, if o has none.
func rxDepth(o ucttest.Options) int {
	if o.RxDepth == 0 {
		return 0
	}
	return max(o.RxDepth, 4)
}

func tinyRC(o ucttest.Options) any {
	return rc.Config{TxDepth: o.TxDepth, TxCQDepth: 256, RxDepth: rxDepth(o), SegSize: 1 << 10}
}

// dyingTimeout is the timeout of ud for a peer that was killed.
const dyingTimeout = 5 * time.Second

func tinyUD(o ucttest.Options) any {
	c := ud.Config{TxDepth: o.TxDepth, Window: o.TxDepth, RxDepth: rxDepth(o)}
	if o.PeerDies {
		c.Timeout = dyingTimeout
	}
	return c
}

// Names of suites, and of their peers.
const (
	rcLoop    = "rc-loop"
	udLoop    = "ud-loop"
	rcDV      = "rc_mlx5-loop"
	udDV      = "ud_mlx5-loop"
	rcPeers   = "rc_mlx5-shm"
	udPeers   = "ud_mlx5-shm"
	rcSilicon = "rc_mlx5-silicon"
)

// Checks that fail because of the software behind the kernel, and would not on an adapter.
var (
	// A post of a receive reads the state of the QP, which is an ioctl here, and the goroutine that plays the adapter
	// allocates.
	allocations = []string{"cost/allocations"}
	// The software HCA reaches memory that it has not allocated through the process that has it.
	revoke = []string{"peer/revoke"}
)

// longestPut transfers 2 GiB, for seconds. The suite of uct/ib/rc has it for rc, and the one with peers here for rc_mlx5.
const longestPut = "limit/put"

func suites() map[string]ucttest.Harness {
	loop := fakekernel.Config{Device: softhca.Config{Fabric: softhca.FabricLoop}}
	shm := fakekernel.Config{Device: softhca.Config{Fabric: softhca.FabricShm}}
	silicon := loop
	silicon.Silicon = true
	all := map[string]ucttest.Harness{}
	for _, s := range []struct {
		name   string
		kernel fakekernel.Config
		tl     ib.Transport
		config func(o ucttest.Options) any
		except []string
	}{
		{rcLoop, loop, rc.Transport(rc.Config{}), tinyRC, testenv.UnlessSweep(longestPut)},
		{udLoop, loop, ud.Transport(ud.Config{}), tinyUD, allocations},
		{rcDV, loop, dv.RC(dv.RCConfig{}), tinyRC, nil},
		{udDV, loop, dv.UD(dv.UDConfig{}), tinyUD, nil},
		{rcPeers, shm, dv.RC(dv.RCConfig{}), tinyRC, revoke},
		{udPeers, shm, dv.UD(dv.UDConfig{}), tinyUD, revoke},
		{rcSilicon, silicon, dv.RC(dv.RCConfig{}), tinyRC, append(testenv.UnlessSweep(longestPut), allocations...)},
	} {
		h := suite(s.name, s.kernel, s.tl, s.config)
		h.Except = s.except
		all[s.name] = h
	}
	return all
}

func TestConformance_RC(t *testing.T) { ucttest.Test(t, suites()[rcLoop]) }

func TestConformance_UD(t *testing.T) { ucttest.Test(t, suites()[udLoop]) }

func TestConformance_RCMLX5(t *testing.T) {
	testenv.SkipSweep(t, "a suite; the one with peers covers it")
	ucttest.Test(t, suites()[rcDV])
}

func TestConformance_UDMLX5(t *testing.T) { ucttest.Test(t, suites()[udDV]) }

func TestConformance_RCMLX5Peers(t *testing.T) { ucttest.Test(t, suites()[rcPeers]) }

func TestConformance_UDMLX5Peers(t *testing.T) {
	testenv.SkipSweep(t, "a suite that waits for timeouts of ud; the one on the loop fabric covers it")
	ucttest.Test(t, suites()[udPeers])
}

func TestConformance_RCMLX5Silicon(t *testing.T) {
	testenv.SkipShort(t, "a suite; that with peers stands for it but for doorbells, which perftest's hardware check has")
	testenv.SkipRace(t, "the goroutine that plays the adapter spins for a minute")
	ucttest.Test(t, suites()[rcSilicon])
}

// adapterEnv names an adapter to test with.
const adapterEnv = "GUCX_TEST_CONNECTX"

// Names of suites on an adapter, and of their peers.
const (
	rcAdapter = "rc_mlx5-adapter"
	udAdapter = "ud_mlx5-adapter"
)

// adapterSuites are suites on the adapter that the environment names.
func adapterSuites() map[string]ucttest.Harness {
	device := os.Getenv(adapterEnv)
	on := func(name string, tl ib.Transport, config func(o ucttest.Options) any) ucttest.Harness {
		return ucttest.Harness{
			OpenMD:    func() (uct.MD, error) { return ib.New(connectx.Devices, tl).OpenMD(device) },
			Transport: tl.Name(), Device: device + ":1", Config: config, Watchdog: time.Minute, StartPeer: ucttest.ExecPeer(name),
		}
	}
	return map[string]ucttest.Harness{
		rcAdapter: on(rcAdapter, dv.RC(dv.RCConfig{}), tinyRC),
		udAdapter: on(udAdapter, dv.UD(dv.UDConfig{}), tinyUD),
	}
}

func testAdapter(t *testing.T, name string) {
	if os.Getenv(adapterEnv) == "" {
		t.Skipf("%s names no adapter", adapterEnv)
	}
	ucttest.Test(t, adapterSuites()[name])
}

func TestAdapter_RCMLX5(t *testing.T) { testAdapter(t, rcAdapter) }

func TestAdapter_UDMLX5(t *testing.T) { testAdapter(t, udAdapter) }
