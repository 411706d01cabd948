package fakekernel

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/gucx/gucx/internal/uverbs"
)

// Attributes of the method that invokes a command of the write ABI.
const (
	attrCoreIn  = 0
	attrCoreOut = 1
	attrCommand = 2
)

// request is an ioctl, with the first error in its attributes. Handlers read and write structs at the offsets of
// ib_user_verbs.h and mlx5-abi.h.
type request struct {
	Call
	err error
}

// fail records the error of an attribute, unless there is an earlier one.
func (r *request) fail(err unix.Errno) {
	if r.err == nil {
		r.err = err
	}
}

// in returns the data of an attribute of n bytes. Error: EINVAL for another length.
func (r *request) in(id uint16, n int) input {
	a := r.attr(id)
	if a == nil || a.Kind != uverbs.AttrIn || len(a.Data) != n {
		r.fail(unix.EINVAL)
		return make(input, n)
	}
	return a.Data
}

// out returns the memory for a reply attribute of n bytes. Error: ENOSPC if the process passed less memory.
func (r *request) out(id uint16, n int) output {
	a := r.attr(id)
	if a == nil || a.Kind != uverbs.AttrOut || len(a.Data) < n {
		r.fail(unix.ENOSPC)
		return make(output, n)
	}
	return a.Data
}

// object returns the handle or descriptor in an attribute.
func (r *request) object(id uint16) uint64 {
	a := r.attr(id)
	if a == nil || a.Kind != uverbs.AttrObject {
		r.fail(unix.EINVAL)
		return 0
	}
	return a.Value
}

// has reports whether there is an attribute.
func (r *request) has(id uint16) bool { return r.attr(id) != nil }

// made stores the handle or descriptor of a new object in an attribute.
func (r *request) made(id uint16, handle uint32) {
	if a := r.attr(id); a != nil {
		a.Value = uint64(handle)
	}
}

// constant returns the number in an attribute.
func (r *request) constant(id uint16) uint64 {
	a := r.attr(id)
	if a == nil || a.Kind != uverbs.AttrConst {
		r.fail(unix.EINVAL)
		return 0
	}
	return a.Value
}

// input and output are structs of the ABI, in the byte order of the host.
type (
	input  []byte
	output []byte
)

func (b input) u16(off int) uint16 { return binary.NativeEndian.Uint16(b[off:]) }
func (b input) u32(off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }
func (b input) u64(off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }

func (b output) put16(off int, v uint16) { binary.NativeEndian.PutUint16(b[off:], v) }
func (b output) put32(off int, v uint32) { binary.NativeEndian.PutUint32(b[off:], v) }
func (b output) put64(off int, v uint64) { binary.NativeEndian.PutUint64(b[off:], v) }
