package data

import "github.com/gucx/gucx/ucs"

// errChanged means that the caller has shortened a list, or pieces of it, before its message completed.
var errChanged = ucs.ErrInvalidParam

// Pack copies bytes from offset off on to dst, until dst is full or the data ends, and
// returns their number. ErrInvalidParam if off is outside of 0..Len or the Buffer is for receiving.
// The data of From must be packed in order, each offset once: ErrInvalidParam
// for another offset and for a Packer that breaks its contract, ErrInvalidState after that.
// With an error, n is the number of bytes that were packed before it.
func (b *Buffer) Pack(off int, dst []byte) (n int, err error) {
	if at := off - b.start; off >= b.start && uint(at) <= uint(len(b.piece)) && len(dst) <= len(b.piece)-at {
		return copy(dst, b.piece[at:]), nil
	}
	return b.packSlow(off, dst)
}

// packSlow implements Pack where the current piece does not have all bytes.
func (b *Buffer) packSlow(off int, dst []byte) (n int, err error) {
	if off < 0 || off > b.length || b.unpacker != nil {
		return 0, ucs.ErrInvalidParam
	}
	dst = dst[:min(len(dst), b.length-off)]
	if b.packer != nil {
		return b.packGeneric(off, dst)
	}
	for n < len(dst) {
		c := copy(dst[n:], b.rest(off+n))
		if c == 0 {
			return n, errChanged
		}
		n += c
	}
	return n, nil
}

// Unpack copies src to the bytes from offset off on, and returns the number of bytes that fit. ErrTruncated
// if some do not fit. ErrInvalidParam if off is negative or the Buffer is for sending. The data of
// To must be unpacked in order, each offset once: ErrInvalidParam for another offset,
// the error of the Unpacker if it returns one, ErrInvalidState after that and after Finish; n
// is 0 in these cases.
func (b *Buffer) Unpack(off int, src []byte) (n int, err error) {
	if at := off - b.start; off >= b.start && uint(at) <= uint(len(b.piece)) && len(src) <= len(b.piece)-at {
		return copy(b.piece[at:], src), nil
	}
	return b.unpackSlow(off, src)
}

// unpackSlow implements Unpack where the current piece has no room for all bytes.
func (b *Buffer) unpackSlow(off int, src []byte) (n int, err error) {
	if off < 0 || b.length == invalid || b.packer != nil {
		return 0, ucs.ErrInvalidParam
	}
	if b.unpacker != nil {
		return b.unpackGeneric(off, src)
	}
	fit := src[:min(len(src), max(b.length-off, 0))]
	for n < len(fit) {
		c := copy(b.rest(off+n), fit[n:])
		if c == 0 {
			return n, errChanged
		}
		n += c
	}
	if n < len(src) {
		return n, ucs.ErrTruncated
	}
	return n, nil
}
