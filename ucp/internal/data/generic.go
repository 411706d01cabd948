package data

import (
	"math"

	"github.com/gucx/gucx/ucs"
)

// inOrder returns an error for a fragment that is not the next one.
func (b *Buffer) inOrder(off, n int) error {
	switch {
	case b.start < 0:
		return ucs.ErrInvalidState
	case off != b.start || n > math.MaxInt-off:
		return ucs.ErrInvalidParam
	}
	return nil
}

// packGeneric calls the Packer until dst, which does not extend beyond the end, is full.
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

// unpackGeneric calls the Unpacker.
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

// Finish completes a receive with err, nil if all bytes arrived, and returns the error of the receive. It
// calls the Unpacker the first time; for other data it returns err.
func (b *Buffer) Finish(err error) error {
	if b.unpacker == nil || b.start == finished {
		return err
	}
	b.start = finished
	return b.unpacker.Finish(err)
}
