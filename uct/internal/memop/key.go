package memop

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// A key names a registration: the low KeyIndexBits are a place in the owner's table,
// the rest is random and never 0, so that a key of another domain, or of a region
// that is gone, does not fit.
const (
	KeyIndexBits = 16
	KeyIndexMask = 1<<KeyIndexBits - 1
)

// KeyLen is the length of a packed key in bytes: magic, key; little endian.
const KeyLen = 12

// NewKey makes a key for a place.
func NewKey(index int) uint64 {
	var b [8]byte
	for {
		// crypto/rand does not fail on Linux; it ends the process instead.
		_, _ = rand.Read(b[:])
		if k := binary.LittleEndian.Uint64(b[:]) &^ KeyIndexMask; k != 0 {
			return k | uint64(index)
		}
	}
}

// Places hands out the places of keys: 1 to KeyIndexMask. The zero value has them all.
// Not safe for concurrent use.
type Places struct {
	free []int // given back
	last int   // taken for the first time
}

// Take returns a place that is free; false if there is none.
func (p *Places) Take() (index int, ok bool) {
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

// Give takes back the place of a key.
func (p *Places) Give(key uint64) { p.free = append(p.free, int(key&KeyIndexMask)) }

// PackKey appends the packed form of key.
func PackKey(b []byte, magic uint32, key uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, magic)
	return binary.LittleEndian.AppendUint64(b, key)
}

// UnpackKey takes exactly what PackKey makes. ErrInvalidRKey otherwise.
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
