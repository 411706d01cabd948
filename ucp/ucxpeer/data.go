package ucxpeer

import "github.com/gucx/gucx/ucp/internal/data"

// Data is the bytes of a message, or the place for them: of [Bytes], [Buffers], [From] or [To]. It belongs
// to the operation until that has completed.
type Data struct{ buffer data.Buffer }

// Packer makes the bytes of a message while it is sent, in order. It must not start operations or call
// Progress.
type Packer interface {
	// Length is the number of bytes. It is called once.
	Length() int
	// PackAt writes the bytes from offset off on to dst and returns how many: 1 to len(dst).
	PackAt(off int, dst []byte) int
}

// Unpacker receives the bytes of a message while it arrives, in order.
type Unpacker interface {
	// UnpackAt consumes src, which begins at offset off of the message, and must not keep it. An error ends
	// the receive.
	UnpackAt(off int, src []byte) error
	// Finish is called once when nothing more arrives; the receive ends with the error that it returns.
	Finish(err error) error
}

// Bytes is contiguous data.
func Bytes(b []byte) Data { return Data{data.Bytes(b)} }

// Buffers is data in pieces.
func Buffers(list [][]byte) Data { return Data{data.List(list)} }

// From is data to send that p makes.
func From(p Packer) Data { return Data{data.From(p)} }

// To is a place for data that u consumes.
func To(u Unpacker) Data { return Data{data.To(u)} }
