package data

import (
	"math"

	"github.com/gucx/gucx/ucs"
)

// inOrder refuses a fragment that is not the next one.
func (b *Buffer) inOrder(off, n int) error {
	switch {
	case b.start < 0:
		return ucs.ErrInvalidState
	case off != b.start || n > math.MaxInt-off:
		return ucs.ErrInvalidParam
	}
	return nil
}

// packGeneric has the Packer fill dst, which does not go beyond the end.
func (b *Buffer) packGeneric(off int, dst []byte) (n int, err error) {
	if err := b.inOrder(off, len(dst)); err != nil {
		return 0, err
	}
	for n < len(dst) {
		c := b.packer.PackAt(off+n, dst[n:])
		if c < 1 || c > len(dst)-n {
			b.start = failed
			return n, ucs.ErrInvalidParam
		}
		n += c
	}
	b.start += n
	return n, nil
}

// unpackGeneric has the Unpacker take src.
func (b *Buffer) unpackGeneric(off int, src []byte) (n int, err error) {
	if err := b.inOrder(off, len(src)); err != nil {
		return 0, err
	}
	if len(src) == 0 {
		return 0, nil
	}
	if err := b.unpacker.UnpackAt(off, src); err != nil {
		b.start = failed
		return 0, err
	}
	b.start += len(src)
	return len(src), nil
}

// Finish ends a receive that ends with err, nil if all of it came, and returns the error
// with which it ends. An Unpacker is told the first time; for all other data that is err.
func (b *Buffer) Finish(err error) error {
	if b.unpacker == nil || b.start == finished {
		return err
	}
	b.start = finished
	return b.unpacker.Finish(err)
}
