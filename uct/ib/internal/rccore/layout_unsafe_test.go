package rccore

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Endpoints must be small: a process may have thousands.
func TestEP_Size(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(EP{}), uintptr(344))
	assert.LessOrEqual(t, unsafe.Offsetof(EP{}.opHead), uintptr(128), "the hot fields fit two cache lines")
}
