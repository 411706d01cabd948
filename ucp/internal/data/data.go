// Package data describes the data of a message: the bytes of the sender, and the buffer of the
// receiver.
//
//	Bytes(b)     contiguous                          addresses, any order
//	List(l)      pieces, as net.Buffers are          addresses, any order
//	From(p)      packed by the sender's [Packer]     no addresses, in order
//	To(u)        unpacked by the receiver's [Unpacker]  no addresses, in order
//
// A request has one [Buffer], which is a value, and processes it piece by piece:
//
//	b := data.List(pieces)
//	err := b.Validate()                   // once, when the request starts
//	n, err := b.Pack(off, dst)            // copies out: eager, or a fragment
//	n, err := b.Unpack(off, src)          // copies in; ErrTruncated if it does not fit
//	count, n := b.Slices(off, max, iov)   // without a copy: what the transport sends
//	err = b.Finish(err)                   // once, when the receive completes
//
// A Buffer remembers the end of its last fragment, so that the next one costs the same in a
// list of any length.
//
// Nothing here allocates, blocks or locks. Only one goroutine at a time may use a Buffer. This goroutine calls the
// methods of the Packer or Unpacker. Slices and lists are not copied: the caller must not change them until the request
// completes.
package data

import (
	"math"

	"github.com/gucx/gucx/ucs"
)

// Packer packs a message while it is sent. Its methods are called within a post of a transport: they may close EPs, and
// must not start or cancel operations, nor call Progress.
type Packer interface {
	// Length returns the number of bytes. It is called once.
	Length() int
	// PackAt writes bytes from offset off on to dst, which does not extend beyond the
	// end, and returns how many it wrote: 1 to len(dst). The next call continues behind
	// them. PackAt must not use dst after it has returned.
	PackAt(off int, dst []byte) int
}

// Unpacker unpacks a message while it arrives.
type Unpacker interface {
	// UnpackAt unpacks src, the bytes from offset off on. Each call continues
	// where the previous one ended. UnpackAt must not use src after it has returned. An error fails the receive: after it
	// only Finish is called.
	UnpackAt(off int, src []byte) error
	// Finish is called once, after the last byte: with nil if the message
	// is complete, otherwise with the reason. The receive completes with the error that Finish
	// returns, which is usually err.
	Finish(err error) error
}

// Buffer is the data of one message. The zero value is a message of no bytes. A Buffer may be copied
// only before its first use: copies share the list, the Packer or the Unpacker.
type Buffer struct {
	length int // invalid if Validate refuses the Buffer

	// The cursor: the piece that Pack, Unpack and Slices use, and its offset. A
	// contiguous buffer is one piece. From and To have only the offset of
	// the next fragment, or failed, or finished.
	piece []byte
	start int
	index int // of piece in list

	list     [][]byte // nil if contiguous
	packer   Packer
	unpacker Unpacker
}

// invalid is the length of a Buffer that Validate refuses.
const invalid = -1

// Offsets of generic data that accepts no more fragments.
const (
	failed   = -1
	finished = -2
)

// Bytes returns a contiguous buffer.
func Bytes(b []byte) Buffer { return Buffer{length: len(b), piece: b} }

// List returns a buffer of several pieces, in order; some may be empty.
func List(list [][]byte) Buffer {
	total, only := 0, []byte(nil)
	for _, p := range list {
		if len(p) == 0 {
			continue
		}
		if total > math.MaxInt-len(p) {
			return Buffer{length: invalid}
		}
		total += len(p)
		only = p
	}
	if len(only) == total { // at most one piece is not empty
		return Bytes(only)
	}
	return Buffer{length: total, piece: list[0], list: list}
}

// From returns data that p packs, for sending.
func From(p Packer) Buffer {
	if p == nil {
		return Buffer{length: invalid}
	}
	return Buffer{length: max(p.Length(), invalid), packer: p}
}

// To returns data that u unpacks, for receiving. Its length is unlimited: u returns ErrTruncated if there is too
// much.
func To(u Unpacker) Buffer {
	if u == nil {
		return Buffer{length: invalid}
	}
	return Buffer{length: math.MaxInt, unpacker: u}
}

// Validate returns ErrInvalidParam for a list whose length overflows, a Packer whose length is negative and a
// nil Packer or Unpacker. Such a Buffer packs and unpacks nothing.
func (b *Buffer) Validate() error {
	if b.length == invalid {
		return ucs.ErrInvalidParam
	}
	return nil
}

// ValidateReceive is Validate of data to receive into, which a Packer is not.
func (b *Buffer) ValidateReceive() error {
	if b.packer != nil {
		return ucs.ErrInvalidParam
	}
	return b.Validate()
}

// Len returns the length in bytes: math.MaxInt for To, negative for what Validate refuses.
func (b *Buffer) Len() int { return b.length }

// Generic reports whether the data has no addresses (From and To): it must be copied, in order.
func (b *Buffer) Generic() bool { return b.packer != nil || b.unpacker != nil }

// Contiguous returns the data if it is in one piece, also one of a list.
func (b *Buffer) Contiguous() ([]byte, bool) {
	if b.list != nil || b.Generic() || b.length == invalid {
		return nil, false
	}
	return b.piece, true
}
