package ib

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestMeasurer: only what processors move is measured.
func TestMeasurer(t *testing.T) {
	port := &Port{Attr: verbs.PortAttr{SpeedGbps: 100}}
	var attr uct.IfaceAttr
	assert.Nil(t, port.Measurer(&attr))
	port.Attr.InMemory = true
	assert.NotNil(t, port.Measurer(&attr))
}

func TestMeasured(t *testing.T) {
	port := &Port{Attr: verbs.PortAttr{SpeedGbps: 100}}
	attr := uct.IfaceAttr{Costs: port.Costs(40)}
	h := handover.Costs{Read: 20e9, Pass: 2e9, Call: time.Microsecond, Kernel: 6e9, Measured: true}
	m := measured(&attr, h)
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
	m = measured(&attr, handover.Costs{Read: 20e9, Pass: 2e9})
	assert.Equal(t, uct.Cost{Send: farCall, Bandwidth: 2e9}, m.RegReach)
	assert.True(t, m.Assumed)
}
