package ucxpeer

import "github.com/gucx/gucx/ucp/internal/data"

// Data is data to send or a destination of data to receive, from [Bytes], [Buffers], [From] or [To]. The caller must not
// use it until the operation has completed.
type Data struct{ buffer data.Buffer }

// Packer produces the bytes of a message while it is sent, in order. It must not start operations or call
// Progress.
type Packer interface {
	// Length returns the number of bytes. It is called once.
	Length() int
	// PackAt writes bytes of the message, beginning with offset off, to dst, and returns their number: 1 to len(dst).
	PackAt(off int, dst []byte) int
}

// Unpacker consumes the bytes of a message while it arrives, in order.
type Unpacker interface {
	// UnpackAt consumes src, which begins at offset off of the message. It must not use src after it has returned. An
	// error fails the receive.
	UnpackAt(off int, src []byte) error
	// Finish is called once, after the last UnpackAt, with the error of the receive; the receive completes with the error
	// that Finish returns.
	Finish(err error) error
}

// Bytes is contiguous data.
func Bytes(b []byte) Data { return Data{data.Bytes(b)} }

// Buffers is data in several buffers.
func Buffers(list [][]byte) Data { return Data{data.List(list)} }

// From is data to send that p produces.
func From(p Packer) Data { return Data{data.From(p)} }

// To is a destination whose data u consumes.
func To(u Unpacker) Data { return Data{data.To(u)} }
