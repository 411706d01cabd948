package sm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/internal/handover"
	"github.com/gucx/gucx/uct"
)

// TestMeasured_CMA: where the configuration forbids it, the peer reaches registered memory.
func TestMeasured_CMA(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	assert.NoError(t, err)
	attr := attrOf(&cfg)
	h := handover.Costs{Read: 20e9, Pass: 2e9, Line: 300, Call: time.Microsecond, Kernel: 6e9, Measured: true}
	assert.Equal(t, uct.Cost{Send: h.Call + 600, Bandwidth: h.Kernel}, measured(&attr, h, true).RegReach)
	assert.Equal(t, uct.Cost{Send: regReach.Send, Bandwidth: h.Pass}, measured(&attr, h, false).RegReach)
	assert.Equal(t, h.Line, measured(&attr, h, true).Costs[uct.AMBcopy].Latency)
}
