package cma

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// kept has what it points to be on the heap.
var kept []byte

func TestReadSelf(t *testing.T) {
	dst, src := make([]byte, 100), make([]byte, 120)
	kept = src
	for i := range src {
		src[i] = pattern(i)
	}
	if err := ReadSelf(dst, src); err != nil {
		t.Skipf("a process must not read its own memory: %v", err)
	}
	assert.Equal(t, src[:100], dst)
}
