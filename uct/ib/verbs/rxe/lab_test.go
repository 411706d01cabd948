package rxe_test

import (
	"os"
	"testing"
	"time"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
	"github.com/gucx/gucx/uct/ib/verbs/rxe"
	"github.com/gucx/gucx/uct/ucttest"
)

func TestMain(m *testing.M) {
	ucttest.PeerMain(suites())
	testenv.Main(m)
}

// deviceEnv names a device of the kernel to test with.
const deviceEnv = "GUCX_TEST_RXE"

func suite(tl ib.Transport, config func(o ucttest.Options) any) ucttest.Harness {
	name := os.Getenv(deviceEnv)
	return ucttest.Harness{
		OpenMD:    func() (uct.MD, error) { return ib.New(rxe.Devices, tl).OpenMD(name) },
		Transport: tl.Name(),
		Device:    name + ":1",
		Config:    config,
		Watchdog:  time.Minute,
		StartPeer: ucttest.ExecPeer(tl.Name()),
	}
}

// dyingTimeout is the timeout of one attempt for peers that die, of which there are 8.
const dyingTimeout = time.Second / 2

// rxDepth is the length of the receive queue for o; 0, the default, if o has none.
func rxDepth(o ucttest.Options) int {
	if o.RxDepth == 0 {
		return 0
	}
	return max(o.RxDepth, 4)
}

// Conformance of rc and ud on a device of the kernel.
func suites() map[string]ucttest.Harness {
	return map[string]ucttest.Harness{
		rc.Name: suite(rc.Transport(rc.Config{}), func(o ucttest.Options) any {
			c := rc.Config{TxDepth: o.TxDepth, TxCQDepth: 256, RxDepth: rxDepth(o), SegSize: 1 << 10}
			if o.PeerDies { // only the timeout and its retries tell
				c.Timeout = dyingTimeout
			}
			return c
		}),
		ud.Name: suite(ud.Transport(ud.Config{}), func(o ucttest.Options) any {
			c := ud.Config{TxDepth: o.TxDepth, Window: o.TxDepth, RxDepth: rxDepth(o)}
			if o.PeerDies {
				c.Timeout = 8 * dyingTimeout
			}
			return c
		}),
	}
}

func testSuite(t *testing.T, name string) {
	if os.Getenv(deviceEnv) == "" {
		t.Skipf("%s names no device of the kernel", deviceEnv)
	}
	ucttest.Test(t, suites()[name])
}

func TestConformance_RC(t *testing.T) { testSuite(t, rc.Name) }

func TestConformance_UD(t *testing.T) { testSuite(t, ud.Name) }
