package data

import "github.com/gucx/gucx/ucs"

// errChanged is what copying finds when the caller has shortened a list, or pieces of it,
// that belong to a message.
var errChanged = ucs.ErrInvalidParam

// Pack copies the bytes from offset off on to dst, until dst is full or at the end, and
// returns how many these are. ErrInvalidParam if off is outside of 0..Len or this is data
// to be received. What From made must be packed in order, each offset once: ErrInvalidParam
// for another offset and for a Packer that breaks its contract, ErrInvalidState after that.
// With an error, n bytes have been packed before it was found.
func (b *Buffer) Pack(off int, dst []byte) (n int, err error) {
	if at := off - b.start; off >= b.start && uint(at) <= uint(len(b.piece)) && len(dst) <= len(b.piece)-at {
		return copy(dst, b.piece[at:]), nil
	}
	return b.packSlow(off, dst)
}

// packSlow is Pack where the current piece does not have it all.
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

// Unpack copies src to the bytes from offset off on, and returns how many fit. ErrTruncated
// if these are not all. ErrInvalidParam if off is negative or this is data to be sent. What
// To made must be unpacked in order, each offset once: ErrInvalidParam for another offset,
// the error of the Unpacker if it has one, ErrInvalidState after that and after Finish; n
// is then 0.
func (b *Buffer) Unpack(off int, src []byte) (n int, err error) {
	if at := off - b.start; off >= b.start && uint(at) <= uint(len(b.piece)) && len(src) <= len(b.piece)-at {
		return copy(b.piece[at:], src), nil
	}
	return b.unpackSlow(off, src)
}

// unpackSlow is Unpack where the current piece does not hold it all.
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
