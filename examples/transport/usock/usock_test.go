package usock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ucttest"
)

// harness tells the suite how to open the transport.
func harness() ucttest.Harness {
	return ucttest.Harness{
		OpenMD:    func() (uct.MD, error) { return New().OpenMD(Name) },
		Transport: Name,
		StartPeer: ucttest.ExecPeer(Name),
	}
}

// TestMain is the peer where a check wants one in another process.
func TestMain(m *testing.M) {
	ucttest.PeerMain(map[string]ucttest.Harness{Name: harness()})
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) { ucttest.Test(t, harness()) }
