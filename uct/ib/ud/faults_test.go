package ud

import (
	"testing"

	"github.com/gucx/gucx/uct/ib/internal/ibtest"
)

func TestDeviceError_EachCall(t *testing.T) {
	ibtest.FailEachCall(t, Transport(Config{}), Config{TxDepth: 8, TxBuffers: 8, RxDepth: 8})
}
