package ibport

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// TestMeasurer: there is a measurer only if CPUs move the bytes.
func TestMeasurer(t *testing.T) {
	port := &Port{Attr: verbs.PortAttr{SpeedGbps: 100}}
	var attr uct.IfaceAttr
	assert.Nil(t, port.Measurer(&attr))
	port.Attr.InMemory = true
	assert.NotNil(t, port.Measurer(&attr))
}

// TestMeasured: messages have the cost of cache lines and of copies of receive buffers; gets have
// neither.
func TestMeasured(t *testing.T) {
	attr := uct.IfaceAttr{Caps: uct.CapAMBcopy | uct.CapGetZcopy}
	attr.Costs[uct.AMBcopy] = uct.Cost{Latency: 800, Bandwidth: 1e9}
	attr.Costs[uct.GetZcopy] = uct.Cost{Latency: 1600, Bandwidth: 1e9}
	m := measured(&attr, handover.Costs{Read: 40e9, Pass: 8e9, Line: 50, Measured: true})
	assert.Equal(t, uct.Cost{Latency: 250, Bandwidth: 4e9}, m.Costs[uct.AMBcopy])
	assert.Equal(t, uct.Cost{Latency: getLatency, Bandwidth: 40e9}, m.Costs[uct.GetZcopy])
	assert.Zero(t, m.Costs[uct.AMShort], "not claimed")
}
