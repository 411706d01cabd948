package data

import "github.com/gucx/gucx/uct"

// seek moves the cursor to the piece that has the byte at off, in 0..length: for length
// to the last piece. It moves piece by piece, in either direction.
func (b *Buffer) seek(off int) {
	for off < b.start {
		b.index--
		b.piece = b.list[b.index]
		b.start -= len(b.piece)
		if b.index == 0 {
			b.start = 0 // no change, unless the caller has changed the list
		}
	}
	for off-b.start >= len(b.piece) && b.index+1 < len(b.list) {
		b.start += len(b.piece)
		b.index++
		b.piece = b.list[b.index]
	}
}

// rest returns the part of a piece from the byte at off on. off must be less than length.
// The result is empty only if the caller has changed the list.
func (b *Buffer) rest(off int) []byte {
	b.seek(off)
	return b.piece[min(off-b.start, len(b.piece)):]
}

// Slices sets entries of iov to the pieces of at most n bytes from offset off on, as far as there
// is room and data. It returns the number of entries and of bytes. No
// entry is empty; Mem is nil in all of them. The pieces are the caller's memory, not
// copies. Generic data has no pieces, nor has a range outside of 0..Len.
func (b *Buffer) Slices(off, n int, iov []uct.IOV) (count, total int) {
	if off < 0 || off > b.length || b.Generic() {
		return 0, 0
	}
	n = min(n, b.length-off)
	for total < n && count < len(iov) {
		p := b.rest(off + total)
		if len(p) == 0 {
			break // the caller has changed the list
		}
		p = p[:min(len(p), n-total)]
		iov[count] = uct.IOV{Buf: p}
		count++
		total += len(p)
	}
	return count, total
}
