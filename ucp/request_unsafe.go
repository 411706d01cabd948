package ucp

import (
	"unsafe"

	"github.com/gucx/gucx/uct"
)

// requestOf is the request whose comp c is: its first field.
func requestOf(c *uct.Completion) *Request { return (*Request)(unsafe.Pointer(c)) }

var _ = [1]struct{}{}[unsafe.Offsetof(Request{}.comp)] // compile error unless it is the first
