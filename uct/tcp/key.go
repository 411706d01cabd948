package tcp

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// wireKey is the key of registered memory: its index in the table, the use count of that index, and
// an unpredictable random number.
type wireKey struct {
	index   uint32
	variant uint32
	nonce   uint64
}

// handle combines index and variant.
func (k wireKey) handle() uint64 { return uint64(k.variant)<<32 | uint64(k.index) }

// Packed form of a remote key.
const (
	keyVersion = 1
	offKeyVer  = 0 // u8, then 3 bytes of 0
	offKeyIdx  = 4
	offKeyVar  = 8
	offKeyRand = 12
	keyLen     = 20
)

func appendKey(b []byte, k wireKey) []byte {
	b = append(b, keyVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, k.index)
	b = binary.LittleEndian.AppendUint32(b, k.variant)
	return binary.LittleEndian.AppendUint64(b, k.nonce)
}

func parseKey(b []byte) (k wireKey, err error) {
	if len(b) != keyLen || binary.LittleEndian.Uint32(b) != keyVersion {
		return k, uct.ErrInvalidRKey
	}
	return wireKey{
		index:   binary.LittleEndian.Uint32(b[offKeyIdx:]),
		variant: binary.LittleEndian.Uint32(b[offKeyVar:]),
		nonce:   binary.LittleEndian.Uint64(b[offKeyRand:]),
	}, nil
}
