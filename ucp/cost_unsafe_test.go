package ucp

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestSizes holds what an endpoint that was never used, a request and a key cost.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   uintptr
		budget uintptr
	}{
		{"EP", unsafe.Sizeof(EP{}), 184},
		{"Request", unsafe.Sizeof(Request{}), 280},
		{"RKey", unsafe.Sizeof(RKey{}), 192},
		{"TagMessage", unsafe.Sizeof(TagMessage{}) + 1<<minBufferBits, messageCharge},
		{"ActiveMessage", unsafe.Sizeof(ActiveMessage{}) + 1<<minBufferBits, messageCharge},
	} {
		assert.LessOrEqual(t, tc.size, tc.budget, tc.name)
	}
}
