package cma

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMeasure: the figures are there where transfers are permitted, and stay as they are.
func TestMeasure(t *testing.T) {
	m := Measure()
	assert.Equal(t, m, Measure(), "once for the process")
	dst, src := make([]byte, 100), make([]byte, 100)
	for i := range src {
		src[i] = pattern(i)
	}
	if _, err := readSelf(dst, src); err != nil {
		assert.Zero(t, m)
		t.Skipf("process %d must not read its own memory: %v", os.Getpid(), err)
	}
	assert.Equal(t, src, dst)
	assert.Equal(t, m.Call > 0, m.Bandwidth > 0)
	t.Logf("a call %v, %.1f GB/s", m.Call, float64(m.Bandwidth)/1e9)
}
