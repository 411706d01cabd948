package memop

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// A key identifies a registration. The low KeyIndexBits are an index in the owner's table. The rest
// is random and never 0, so that a key of another domain or of a closed region does not match.
const (
	KeyIndexBits = 16
	KeyIndexMask = 1<<KeyIndexBits - 1
)

// KeyLen is the length of a packed key in bytes: magic, key; little-endian.
const KeyLen = 12

// NewKey makes a key with an index.
func NewKey(index int) uint64 {
	var b [8]byte
	for {
		// crypto/rand returns no error on Linux; it terminates the process instead.
		_, _ = rand.Read(b[:])
		if k := binary.LittleEndian.Uint64(b[:]) &^ KeyIndexMask; k != 0 {
			return k | uint64(index)
		}
	}
}

// KeyIndexes allocates the indexes of keys, 1 to KeyIndexMask. In the zero value all are free. It
// is not safe for concurrent use.
type KeyIndexes struct {
	free []int // freed indexes
	last int   // highest index that was allocated
}

// Alloc returns a free index; false if there is none.
func (p *KeyIndexes) Alloc() (index int, ok bool) {
	if n := len(p.free); n > 0 {
		index = p.free[n-1]
		p.free = p.free[:n-1]
		return index, true
	}
	if p.last == KeyIndexMask {
		return 0, false
	}
	p.last++
	return p.last, true
}

// Free frees the index of a key.
func (p *KeyIndexes) Free(key uint64) { p.free = append(p.free, int(key&KeyIndexMask)) }

// PackKey appends the packed key to b.
func PackKey(b []byte, magic uint32, key uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, magic)
	return binary.LittleEndian.AppendUint64(b, key)
}

// UnpackKey decodes a packed key. ErrInvalidRKey unless b is exactly a result of PackKey.
func UnpackKey(b []byte, magic uint32) (uct.RKey, error) {
	if len(b) != KeyLen || binary.LittleEndian.Uint32(b) != magic {
		return 0, uct.ErrInvalidRKey
	}
	key := binary.LittleEndian.Uint64(b[4:])
	if key>>KeyIndexBits == 0 {
		return 0, uct.ErrInvalidRKey
	}
	return uct.RKey(key), nil
}
