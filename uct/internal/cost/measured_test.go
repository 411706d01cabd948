package cost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
)

// TestMeasured: messages have the cost of passing, operations on memory of the transport that of
// reading, and operations on registered memory that of the kernel, or of the peer if the kernel
// must not access it.
func TestMeasured(t *testing.T) {
	const byPeer = 2 * time.Microsecond
	var attr uct.IfaceAttr
	for v := range uct.Variant(uct.NumVariants) {
		attr.Costs[v] = uct.Cost{Send: time.Duration(v), SharedBandwidth: 1e9, Bandwidth: 1e9}
	}
	attr.Costs[uct.PutShort].Bandwidth = 0
	h := handover.Costs{Read: 20e9, Pass: 2e9, Line: 100, Call: time.Microsecond, Kernel: 6e9, Measured: true}
	m := Measured(&attr, h, byPeer)
	assert.False(t, m.Assumed)
	for v, bandwidth := range map[uct.Variant]uint64{uct.AMShort: h.Pass, uct.AMBcopy: h.Pass, uct.AMZcopy: h.Pass, uct.QueueZcopy: h.Pass,
		uct.PutBcopy: h.Read, uct.PutZcopy: h.Read, uct.GetShort: h.Read, uct.GetZcopy: h.Read} {
		assert.Equal(t, uct.Cost{Send: time.Duration(v), Bandwidth: bandwidth}, m.Costs[v], "%v", v)
	}
	assert.Equal(t, attr.Costs[uct.PutShort], m.Costs[uct.PutShort], "its time does not depend on the length")
	assert.Equal(t, uct.Cost{Send: h.Call + 200, Bandwidth: h.Kernel}, m.RegReach)
	m = Measured(&attr, handover.Costs{Read: 20e9, Pass: 2e9}, byPeer)
	assert.Equal(t, uct.Cost{Send: byPeer, Bandwidth: h.Pass}, m.RegReach)
	assert.True(t, m.Assumed)
}
