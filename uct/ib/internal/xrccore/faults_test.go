package xrccore

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/internal/rccore"
)

// TestDeviceError_EachCall makes each device call fail, for ifaces that share a domain. Package dv tests ifaces that do
// not.
func TestDeviceError_EachCall(t *testing.T) {
	testenv.SkipRace(t, "one goroutine makes all calls")
	for _, share := range []string{ShareProcess, ShareHost} {
		t.Run(share, func(t *testing.T) {
			ibtest.FailEachCall(t, testTransport(), Config{
				Config:       rccore.Config{TxDepth: 8, TxCQDepth: 32, TxBuffers: 4, RxDepth: 8, SegSize: 1 << 10},
				QueueCQDepth: 128, ShareDomain: share, DomainDir: t.TempDir(),
			})
		})
	}
}
