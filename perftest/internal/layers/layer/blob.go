package layer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrAddress is the error for bytes from the peer that are not an address of this layer.
var ErrAddress = errors.New("malformed address from the peer")

// AppendBlobs appends each blob to b, preceded by its length in two bytes, big endian. A layer
// packs an address of several parts with it.
func AppendBlobs(b []byte, blobs ...[]byte) ([]byte, error) {
	for _, x := range blobs {
		if len(x) > math.MaxUint16 {
			return nil, fmt.Errorf("part of an address has %d bytes, at most %d", len(x), math.MaxUint16)
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(x)))
		b = append(b, x...)
	}
	return b, nil
}

// CutBlobs sets into to the blobs in b, which must contain exactly len(into) blobs. They alias b.
// Errors: ErrAddress.
func CutBlobs(b []byte, into ...*[]byte) error {
	for i, x := range into {
		if len(b) < 2 {
			return fmt.Errorf("%w: it ends before part %d", ErrAddress, i)
		}
		n := int(binary.BigEndian.Uint16(b))
		b = b[2:]
		if n > len(b) {
			return fmt.Errorf("%w: part %d has %d bytes of %d", ErrAddress, i, len(b), n)
		}
		*x, b = b[:n:n], b[n:]
	}
	if len(b) != 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrAddress, len(b))
	}
	return nil
}

// Region describes the memory of the target in an address.
type Region struct {
	Addr uint64
	Len  uint64
}

const regionLen = 16

// Append packs r.
func (r Region) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, r.Addr)
	return binary.BigEndian.AppendUint64(b, r.Len)
}

// ParseRegion unpacks and checks a region. It must have at least need bytes.
func ParseRegion(b []byte, need int) (Region, error) {
	if len(b) != regionLen {
		return Region{}, fmt.Errorf("%w: region of %d bytes", ErrAddress, len(b))
	}
	r := Region{Addr: binary.BigEndian.Uint64(b), Len: binary.BigEndian.Uint64(b[8:])}
	if r.Len < uint64(need) {
		return Region{}, fmt.Errorf("%w: the target's memory has %d bytes, need %d", ErrAddress, r.Len, need)
	}
	if r.Addr+r.Len < r.Addr {
		return Region{}, fmt.Errorf("%w: the target's memory wraps around", ErrAddress)
	}
	return r, nil
}
