// Package data has what a message is made of: the bytes that a sender gives and the place
// that a receiver has for them.
//
//	Bytes(b)     contiguous                          addresses, any order
//	List(l)      pieces, as net.Buffers are          addresses, any order
//	From(p)      made by the sender's [Packer]       no addresses, in order
//	To(u)        taken by the receiver's [Unpacker]  no addresses, in order
//
// A request keeps one [Buffer], which is a value, and uses it piece by piece:
//
//	b := data.List(pieces)
//	err := b.Validate()                   // once, when the request starts
//	n, err := b.Pack(off, dst)            // copies out: eager, or a fragment
//	n, err := b.Unpack(off, src)          // copies in; ErrTruncated if it does not fit
//	count, n := b.Slices(off, max, iov)   // without a copy: what the transport sends
//	err = b.Finish(err)                   // once, when the receive ends
//
// A Buffer knows where its last fragment ended, so that the next one costs the same in a
// list of any length.
//
// Nothing here allocates, blocks or locks. One goroutine at a time uses a Buffer, and calls
// of a Packer and an Unpacker come from that. Slices and lists are not copied: they belong
// to the message, unchanged, until its request has ended.
package data

import (
	"math"

	"github.com/gucx/gucx/ucs"
)

// Packer makes the bytes of a message while it is sent. It is called within a transport: it may
// close EPs, and must not start or cancel operations, nor make progress.
type Packer interface {
	// Length is how many bytes there are. It is called once.
	Length() int
	// PackAt writes the bytes from offset off on to dst, which does not go beyond the
	// end, and returns how many it wrote: 1 to len(dst). Those that it left are asked
	// for by the next call. Each call begins where the one before ended. dst must not
	// be kept.
	PackAt(off int, dst []byte) int
}

// Unpacker takes the bytes of a message while it arrives.
type Unpacker interface {
	// UnpackAt takes src, which has the bytes from offset off on. Each call begins
	// where the one before ended. src must not be kept. An error ends the receive:
	// there are no further calls but Finish.
	UnpackAt(off int, src []byte) error
	// Finish says that nothing more comes. It is called once: with nil if the message
	// came whole, otherwise with the reason. The receive ends with the error that it
	// returns, which as a rule is err.
	Finish(err error) error
}

// Buffer is the data of one message. The zero value is a message of no bytes. Copy a Buffer
// only before its first use: what it was made of is shared by the copies.
type Buffer struct {
	length int // invalid if it cannot be told

	// The cursor: the piece at which Pack, Unpack and Slices are, and its offset. A
	// contiguous buffer is one piece. Of From and To there is only the offset at which
	// the next fragment begins, or failed, or finished.
	piece []byte
	start int
	index int // of piece in list

	list     [][]byte // nil if contiguous
	packer   Packer
	unpacker Unpacker
}

// invalid is the length of a Buffer that Validate refuses.
const invalid = -1

// Offsets of generic data that takes no more fragments.
const (
	failed   = -1
	finished = -2
)

// Bytes is a contiguous buffer.
func Bytes(b []byte) Buffer { return Buffer{length: len(b), piece: b} }

// List is a buffer in pieces, in order; some may be empty.
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
	if len(only) == total { // one piece that is not empty, or none
		return Bytes(only)
	}
	return Buffer{length: total, piece: list[0], list: list}
}

// From is data that p makes, to be sent.
func From(p Packer) Buffer {
	if p == nil {
		return Buffer{length: invalid}
	}
	return Buffer{length: max(p.Length(), invalid), packer: p}
}

// To is a receive of data that u takes. Its length is not bounded: u refuses what is too
// much, with ErrTruncated.
func To(u Unpacker) Buffer {
	if u == nil {
		return Buffer{length: invalid}
	}
	return Buffer{length: math.MaxInt, unpacker: u}
}

// Validate refuses a list whose length overflows, a Packer whose length is negative and a
// nil Packer or Unpacker: ErrInvalidParam. Such a Buffer packs and takes nothing.
func (b *Buffer) Validate() error {
	if b.length == invalid {
		return ucs.ErrInvalidParam
	}
	return nil
}

// Len is the length in bytes: of To math.MaxInt, of what Validate refuses negative.
func (b *Buffer) Len() int { return b.length }

// Generic reports whether the data has no addresses (From and To): it is copied, in order.
func (b *Buffer) Generic() bool { return b.packer != nil || b.unpacker != nil }

// Contiguous returns the data if it is in one piece, also of a list.
func (b *Buffer) Contiguous() ([]byte, bool) {
	if b.list != nil || b.Generic() || b.length == invalid {
		return nil, false
	}
	return b.piece, true
}
