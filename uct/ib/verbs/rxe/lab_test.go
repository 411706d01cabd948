package rxe_test

import (
	"cmp"
	"os"
	"strings"
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
	ucttest.PeerMain(suites(1))
	testenv.Main(m)
}

const (
	// deviceEnv names a device of the kernel to test with.
	deviceEnv = "GUCX_TEST_RXE"
	// peerEnv names the device of the other side, where there is one; without it both sides use the device of deviceEnv.
	// Packets cross a network interface only between two devices.
	peerEnv = "GUCX_TEST_RXE_PEER"
	// lossyEnv is set where packets get lost: then attempts have a timeout of lossyTimeout.
	lossyEnv = "GUCX_TEST_RXE_LOSSY"
	// exceptEnv lists checks to leave out, separated by commas.
	exceptEnv = "GUCX_TEST_RXE_EXCEPT"
)

// suite is the harness of a transport. Its memory domains are those of the two devices in turn, from the first-th on.
func suite(tl ib.Transport, first int, config func(o ucttest.Options) any) ucttest.Harness {
	devices := [2]string{os.Getenv(deviceEnv), cmp.Or(os.Getenv(peerEnv), os.Getenv(deviceEnv))}
	opened := first
	return ucttest.Harness{
		OpenMD: func() (uct.MD, error) {
			opened++
			return ib.New(rxe.Devices, tl).OpenMD(devices[(opened-1)%2])
		},
		Transport: tl.Name(),
		Config:    config,
		Watchdog:  5 * time.Minute, // a read of 8 MiB over a lossy network takes minutes if the host is busy
		StartPeer: ucttest.ExecPeer(tl.Name()),
		Except:    strings.FieldsFunc(os.Getenv(exceptEnv), func(r rune) bool { return r == ',' }),
	}
}

const (
	// dyingTimeout is the timeout of one attempt for peers that die, of which there are 8.
	dyingTimeout = time.Second / 2
	// lossyTimeout is that for peers that live. A connection fails after 7 attempts without a reply. On a busy host the virtual machine
	// may need a second to reply.
	lossyTimeout = time.Second / 4
)

// attempt is the timeout of one attempt for o; 0, the default, unless silence is what the check is about.
func attempt(o ucttest.Options) time.Duration {
	switch {
	case o.PeerDies:
		return dyingTimeout
	case os.Getenv(lossyEnv) != "":
		return lossyTimeout
	}
	return 0
}

// rxDepth is the length of the receive queue for o; 0, the default, if o has none.
func rxDepth(o ucttest.Options) int {
	if o.RxDepth == 0 {
		return 0
	}
	return max(o.RxDepth, 4)
}

// Conformance of rc and ud on a device of the kernel.
func suites(first int) map[string]ucttest.Harness {
	return map[string]ucttest.Harness{
		rc.Name: suite(rc.Transport(rc.Config{}), first, func(o ucttest.Options) any {
			return rc.Config{TxDepth: o.TxDepth, TxCQDepth: 256, RxDepth: rxDepth(o), SegSize: 1 << 10, Timeout: attempt(o)}
		}),
		ud.Name: suite(ud.Transport(ud.Config{}), first, func(o ucttest.Options) any {
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
	ucttest.Test(t, suites(0)[name])
}

func TestConformance_RC(t *testing.T) { testSuite(t, rc.Name) }

func TestConformance_UD(t *testing.T) { testSuite(t, ud.Name) }
