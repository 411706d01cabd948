package dv

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
	"github.com/gucx/gucx/uct/ib/rc"
	"github.com/gucx/gucx/uct/ib/ud"
)

func TestDeviceError_EachCall(t *testing.T) {
	testenv.SkipRace(t, "one goroutine makes all calls")
	small := rc.Config{TxDepth: 8, TxCQDepth: 32, TxBuffers: 4, RxDepth: 8, SegSize: 1 << 10}
	t.Run(RCName, func(t *testing.T) { ibtest.FailEachCall(t, RC(RCConfig{}), small) })
	t.Run(UDName, func(t *testing.T) {
		ibtest.FailEachCall(t, UD(UDConfig{}), ud.Config{TxDepth: 8, TxBuffers: 8, RxDepth: 8})
	})
	t.Run(XRCName, func(t *testing.T) {
		var cfg XRCConfig
		cfg.Config.Config, cfg.QueueCQDepth = small, 128
		ibtest.FailEachCall(t, XRC(XRCConfig{}), cfg)
	})
}
