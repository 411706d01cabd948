package base

import "github.com/gucx/gucx/uct"

// An EP that does not implement all variants of an operation class embeds types of this
// file. Each implements one variant, which returns uct.ErrUnsupported.
// They have no fields; they should not be the last field of a struct, where they add padding.

// NoAMShort implements AMShort for an EP without it.
type NoAMShort struct{}

// AMShort returns ErrUnsupported.
func (NoAMShort) AMShort(uint8, uint64, []byte) error { return uct.ErrUnsupported }

// NoAMBcopy implements AMBcopy for an EP without it.
type NoAMBcopy struct{}

// AMBcopy returns ErrUnsupported.
func (NoAMBcopy) AMBcopy(uint8, uct.Packer) (int, error) { return 0, uct.ErrUnsupported }

// NoAMZcopy implements AMZcopy for an EP without it.
type NoAMZcopy struct{}

// AMZcopy returns ErrUnsupported.
func (NoAMZcopy) AMZcopy(uint8, []byte, []uct.IOV, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoPutShort implements PutShort for an EP without it.
type NoPutShort struct{}

// PutShort returns ErrUnsupported.
func (NoPutShort) PutShort([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// NoPutBcopy implements PutBcopy for an EP without it.
type NoPutBcopy struct{}

// PutBcopy returns ErrUnsupported.
func (NoPutBcopy) PutBcopy([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// NoPutZcopy implements PutZcopy for an EP without it.
type NoPutZcopy struct{}

// PutZcopy returns ErrUnsupported.
func (NoPutZcopy) PutZcopy([]uct.IOV, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoGetShort implements GetShort for an EP without it.
type NoGetShort struct{}

// GetShort returns ErrUnsupported.
func (NoGetShort) GetShort([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// NoGetBcopy implements GetBcopy for an EP without it.
type NoGetBcopy struct{}

// GetBcopy returns ErrUnsupported.
func (NoGetBcopy) GetBcopy([]byte, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoGetZcopy implements GetZcopy for an EP without it.
type NoGetZcopy struct{}

// GetZcopy returns ErrUnsupported.
func (NoGetZcopy) GetZcopy([]uct.IOV, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoAtomicPost implements AtomicPost for an EP without it.
type NoAtomicPost struct{}

// AtomicPost returns ErrUnsupported.
func (NoAtomicPost) AtomicPost(uct.AtomicOp, int, uint64, uint64, uct.RKey) error {
	return uct.ErrUnsupported
}

// NoAtomicFetch implements AtomicFetch and AtomicCSwap for an EP without them.
type NoAtomicFetch struct{}

// AtomicFetch returns ErrUnsupported.
func (NoAtomicFetch) AtomicFetch(uct.AtomicOp, int, uint64, *uint64, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// AtomicCSwap returns ErrUnsupported.
func (NoAtomicFetch) AtomicCSwap(int, uint64, uint64, *uint64, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}
