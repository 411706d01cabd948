package rc

import (
	"testing"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ib"
	"github.com/gucx/gucx/uct/ib/internal/ibtest"
)

func TestDeviceError_EachCall(t *testing.T) {
	testenv.SkipRace(t, "one goroutine makes all calls")
	small := Config{TxDepth: 8, TxCQDepth: 32, TxBuffers: 4, RxDepth: 8, SegSize: 1 << 10}
	spares := small
	spares.IB.Endpoints = ib.Endpoints2xDynamic
	t.Run("Dynamic", func(t *testing.T) { ibtest.FailEachCall(t, Transport(Config{}), small) })
	t.Run("2xDynamic", func(t *testing.T) { ibtest.FailEachCall(t, Transport(Config{}), spares) })
}
