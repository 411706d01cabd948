package ib

import (
	"testing"

	"github.com/stretchr/testify/assert"

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
