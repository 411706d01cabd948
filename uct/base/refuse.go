package base

import "github.com/gucx/gucx/uct"

// The types of this file are embedded in an EP that implements an operation class
// without all of its variants. Each refuses one variant with uct.ErrUnsupported.
// They have no fields; do not embed one last, where it would pad the struct.

// NoAMShort refuses AMShort.
type NoAMShort struct{}

// AMShort returns ErrUnsupported.
func (NoAMShort) AMShort(uint8, uint64, []byte) error { return uct.ErrUnsupported }

// NoAMBcopy refuses AMBcopy.
type NoAMBcopy struct{}

// AMBcopy returns ErrUnsupported.
func (NoAMBcopy) AMBcopy(uint8, uct.Packer) (int, error) { return 0, uct.ErrUnsupported }

// NoAMZcopy refuses AMZcopy.
type NoAMZcopy struct{}

// AMZcopy returns ErrUnsupported.
func (NoAMZcopy) AMZcopy(uint8, []byte, []uct.IOV, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoPutShort refuses PutShort.
type NoPutShort struct{}

// PutShort returns ErrUnsupported.
func (NoPutShort) PutShort([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// NoPutBcopy refuses PutBcopy.
type NoPutBcopy struct{}

// PutBcopy returns ErrUnsupported.
func (NoPutBcopy) PutBcopy([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// NoPutZcopy refuses PutZcopy.
type NoPutZcopy struct{}

// PutZcopy returns ErrUnsupported.
func (NoPutZcopy) PutZcopy([]uct.IOV, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoGetShort refuses GetShort.
type NoGetShort struct{}

// GetShort returns ErrUnsupported.
func (NoGetShort) GetShort([]byte, uint64, uct.RKey) error { return uct.ErrUnsupported }

// NoGetBcopy refuses GetBcopy.
type NoGetBcopy struct{}

// GetBcopy returns ErrUnsupported.
func (NoGetBcopy) GetBcopy([]byte, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoGetZcopy refuses GetZcopy.
type NoGetZcopy struct{}

// GetZcopy returns ErrUnsupported.
func (NoGetZcopy) GetZcopy([]uct.IOV, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// NoAtomicPost refuses AtomicPost.
type NoAtomicPost struct{}

// AtomicPost returns ErrUnsupported.
func (NoAtomicPost) AtomicPost(uct.AtomicOp, int, uint64, uint64, uct.RKey) error {
	return uct.ErrUnsupported
}

// NoAtomicFetch refuses AtomicFetch and AtomicCSwap.
type NoAtomicFetch struct{}

// AtomicFetch returns ErrUnsupported.
func (NoAtomicFetch) AtomicFetch(uct.AtomicOp, int, uint64, *uint64, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}

// AtomicCSwap returns ErrUnsupported.
func (NoAtomicFetch) AtomicCSwap(int, uint64, uint64, *uint64, uint64, uct.RKey, *uct.Completion) (bool, error) {
	return false, uct.ErrUnsupported
}
