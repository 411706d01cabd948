package softhca

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestStopDriving_WaitsForReadersOfGuards: a goroutine that handles the end of a link reads the guards
// of the other links with linkMu held. Their memory must not be unmapped meanwhile.
func TestStopDriving_WaitsForReadersOfGuards(t *testing.T) {
	const yields = 1000 // in which the other goroutine could continue, if it did not wait
	h := new(hca)
	h.setOutbound(nil)
	h.setInbound([]*inLink{{hca: h}})
	linked := func() bool { return len(*h.inbound.Load()) > 0 }

	h.linkMu.Lock()
	stopped := make(chan bool)
	go func() {
		h.stopDriving()
		close(stopped)
	}()
	for linked() && h.driving.TryLock() {
		h.driving.Unlock()
		runtime.Gosched()
	}
	for range yields {
		runtime.Gosched()
	}
	assert.True(t, linked(), "stopDriving has not removed links that a goroutine reads")
	h.linkMu.Unlock()
	<-stopped
	assert.False(t, linked())
}
