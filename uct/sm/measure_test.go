package sm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
)

// TestMeasured: messages are passed, operations on memory of the transport read or write it, and
// what is only registered the kernel reaches, or the peer where that must not.
func TestMeasured(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	assert.NoError(t, err)
	attr := attrOf(&cfg)
	h := handover.Costs{Read: 20e9, Pass: 2e9, Call: time.Microsecond, Kernel: 6e9, Measured: true}
	m := measured(&attr, h, true)
	assert.False(t, m.Assumed)
	for v := range uct.Variant(uct.NumVariants) {
		want := attr.Costs[v]
		if want.Bandwidth > 0 {
			want.SharedBandwidth, want.Bandwidth = 0, h.Read
			if v <= uct.AMZcopy {
				want.Bandwidth = h.Pass
			}
		}
		assert.Equal(t, want, m.Costs[v], "%v", v)
	}
	assert.Equal(t, uct.Cost{Send: h.Call, Bandwidth: h.Kernel}, m.RegReach)
	byPeer := uct.Cost{Send: regReach.Send, Bandwidth: h.Pass}
	assert.Equal(t, byPeer, measured(&attr, h, false).RegReach)
	h.Kernel, h.Measured = 0, false
	m = measured(&attr, h, true)
	assert.Equal(t, byPeer, m.RegReach)
	assert.True(t, m.Assumed)
}
