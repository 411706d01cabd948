package ucp

import (
	"unsafe"

	"github.com/gucx/gucx/uct"
)

// requestOf returns the request that contains c as its field comp, which is the first field.
func requestOf(c *uct.Completion) *Request { return (*Request)(unsafe.Pointer(c)) }

// record is memory in a request for the state of its protocol. Each protocol converts it to its own struct type, which has no
// pointers and at most this size, and sets the whole struct before it reads a field.
type record [3]uint64

// recordOf returns the record of a request as a T, the type of its protocol. The conversion is valid (unsafe.Pointer, rule 1),
// because a T has no pointers and is not larger than a record. TestRooms in internal/archtest checks this.
func recordOf[T any](r *Request) *T { return (*T)(unsafe.Pointer(&r.record)) }

var _ = [1]struct{}{}[unsafe.Offsetof(Request{}.comp)] // compile error unless it is the first
