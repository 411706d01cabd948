package tcp

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

func openMD() (uct.MD, error) { return New(Config{Devices: []string{allDevices}}).OpenMD(Name) }

// tiny is the configuration of the suite: buffers, also of sockets, for a few messages only, so
// that they become full. The linger time is short, as some peers do not read.
func tiny(o ucttest.Options) any {
	return Config{SegSize: 1 << 10, TxOps: max(o.TxDepth, 4), SendvThresh: 64, SndBuf: 4 << 10, RcvBuf: config.MemSize(4 << 10),
		Linger: 500 * time.Millisecond}
}

func harness() ucttest.Harness {
	return ucttest.Harness{
		OpenMD: openMD, Transport: Name, Device: "lo", Config: tiny, StartPeer: ucttest.ExecPeer("tcp"),
		Except: []string{"limit/put", "limit/get"}, // 1 GiB takes 20 s in frames of 4 KiB; see TestConformance_Limits
	}
}

// defaultHarness is harness with queues of default size.
func defaultHarness() ucttest.Harness {
	h := harness()
	h.Config, h.StartPeer, h.Except = nil, ucttest.ExecPeer("tcp-default"), nil
	return h
}

func TestConformance_Limits(t *testing.T) {
	for _, v := range ucttest.Results(defaultHarness(), "limit/put", "limit/get") {
		assert.False(t, v.Failed || v.Skipped, "%v", v)
	}
}

// localPeers sets peers of h that are goroutines, for configurations for which there is no peer
// process. Killing a peer resets its sockets.
func localPeers(h ucttest.Harness) ucttest.Harness {
	h.StartPeer = ucttest.LocalPeer(h, func(_ uct.MD, it uct.Iface) error { return killSockets(it.(*iface), true) })
	return h
}

func TestMain(m *testing.M) {
	if os.Getenv(benchEnv) != "" {
		serveBench()
	}
	if device := os.Getenv(farEnv); device != "" {
		serveFar(device)
	}
	ucttest.PeerMain(map[string]ucttest.Harness{"tcp": harness(), "tcp-default": defaultHarness()})
	testenv.Main(m)
}

func TestConformance_Loopback(t *testing.T) { ucttest.Test(t, harness()) }

func TestConformance_DefaultSizes(t *testing.T) {
	testenv.SkipSweep(t, "a suite; the one with small queues finds more")
	ucttest.Test(t, defaultHarness())
}
