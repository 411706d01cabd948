package ucp

import (
	"github.com/gucx/gucx/ucp/internal/data"
)

// Data is the data of one message, or of one send or receive of a stream, in a form other than one slice: the bytes to
// send, or where to receive them. [Bytes], [Buffers], [From] and [To] make it. Use a Data for one operation only.
// Until the request has completed, the caller must not modify the slices that it was made of, nor
// read those of a receive.
type Data struct{ buffer data.Buffer }

// Packer makes the bytes of a message while it is sent. Its methods are called on the goroutine
// that drives the worker, within a transport: they may close EPs, and must not start or cancel
// operations, nor call Progress.
type Packer interface {
	// Length returns the number of bytes. It is called once.
	Length() int
	// PackAt writes the bytes from offset off on to dst, which does not go beyond the end, and
	// returns how many it wrote: 1 to len(dst). Each call begins where the one before ended.
	// PackAt must not retain dst.
	PackAt(off int, dst []byte) int
}

// Unpacker consumes the bytes of a message while it arrives. For its methods the rules of
// [Packer] hold.
type Unpacker interface {
	// UnpackAt consumes src, the bytes from offset off on. Each call begins where the one before
	// ended. UnpackAt must not retain src. After an error only Finish is called.
	UnpackAt(off int, src []byte) error
	// Finish is called once, after the last UnpackAt: with nil if the message is complete,
	// otherwise with the reason why it is not. The receive fails with the error that Finish
	// returns, which should be err.
	Finish(err error) error
}

// Bytes returns data in one piece.
func Bytes(b []byte) Data { return Data{data.Bytes(b)} }

// Buffers returns data in pieces, like net.Buffers; pieces may be empty.
func Buffers(list [][]byte) Data { return Data{data.List(list)} }

// From returns data to send that p makes.
func From(p Packer) Data { return Data{data.From(p)} }

// To returns data to receive that u consumes. Its length has no limit: u rejects what is too
// long with ErrTruncated.
func To(u Unpacker) Data { return Data{data.To(u)} }
