package ucp

import (
	"math/bits"
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestSizes pins the sizes of an endpoint that was never used, a request and a key.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		size   uintptr
		budget uintptr
	}{
		{"EP", unsafe.Sizeof(EP{}), 192},
		{"Request", unsafe.Sizeof(Request{}), 280},
		{"RKey", unsafe.Sizeof(RKey{}), 192},
		{"TagMessage", unsafe.Sizeof(TagMessage{}) + 1<<minBufferBits, messageCharge},
		{"ActiveMessage", unsafe.Sizeof(ActiveMessage{}) + 1<<minBufferBits, messageCharge},
	} {
		assert.LessOrEqual(t, tc.size, tc.budget, tc.name)
	}
}

// TestFields limits the number of fields of a worker, an EP, its messages and a request.
func TestFields(t *testing.T) {
	assert.LessOrEqual(t, reflect.TypeFor[Worker]().NumField(), 30, "fields of Worker")
	assert.LessOrEqual(t, reflect.TypeFor[EP]().NumField(), 22, "fields of EP")
	assert.LessOrEqual(t, reflect.TypeFor[Request]().NumField(), 20, "fields of Request")
	assert.LessOrEqual(t, reflect.TypeFor[messages]().NumField(), 21, "fields of messages")
	assert.LessOrEqual(t, bits.OnesCount32(uint32(reqEnd-1)&^uint32(reqPlace)), 16, "flags of Request")
}

// TestLines pins the cache lines that a receive of a tagged message uses: one of its request and two of its match
// record. Hundreds are posted, and each is accessed three times.
func TestLines(t *testing.T) {
	const line = 64
	var r Request
	assert.LessOrEqual(t, unsafe.Offsetof(r.worker)+unsafe.Sizeof(r.worker)-unsafe.Offsetof(r.flags), uintptr(line))
	for name, offset := range map[string]uintptr{
		"status": unsafe.Offsetof(r.status), "next": unsafe.Offsetof(r.next), "recv": unsafe.Offsetof(r.recv),
	} {
		assert.Greater(t, offset, unsafe.Offsetof(r.flags), name)
		assert.Less(t, offset, unsafe.Offsetof(r.worker), name)
	}
	const matched = 80 // bytes at the front of a match.Recv that the first post and match access
	var v tagRecv
	assert.LessOrEqual(t, unsafe.Offsetof(v.node)+matched, uintptr(2*line))
	for name, offset := range map[string]uintptr{
		"req": unsafe.Offsetof(v.req), "mem": unsafe.Offsetof(v.mem), "buf": unsafe.Offsetof(v.buf), "info": unsafe.Offsetof(v.info),
	} {
		assert.Less(t, offset, unsafe.Offsetof(v.node), name)
	}
}
