package memtp

import "encoding/binary"

// Addresses and keys consist of a type, an id and a check value:
//
//	0  u32  type
//	4  u64  id
//	12 u32  check: hash of the type and both halves of id
const (
	idKind  = 0
	idID    = 4
	idCheck = 12
	idLen   = 16

	keyLen = idLen
)

// Types of ids. They are random numbers, so that parseID detects random bytes.
const (
	kindDevice = 0x6d9f01a7
	kindIface  = 0x6d9f02b3
	kindEP     = 0x6d9f03c5
	kindKey    = 0x6d9f04d9
)

func checkWord(kind uint32, id uint64) uint32 {
	return (kind ^ uint32(id)*0x9e3779b1 ^ uint32(id>>32)*0x85ebca77) ^ 0x5bd1e995
}

func appendID(b []byte, kind uint32, id uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = binary.LittleEndian.AppendUint64(b, id)
	return binary.LittleEndian.AppendUint32(b, checkWord(kind, id))
}

// parseID parses the result of appendID; ok is false for other bytes.
func parseID(b []byte, kind uint32) (id uint64, ok bool) {
	if len(b) != idLen {
		return 0, false
	}
	id = binary.LittleEndian.Uint64(b[idID:])
	ok = binary.LittleEndian.Uint32(b[idKind:]) == kind &&
		binary.LittleEndian.Uint32(b[idCheck:]) == checkWord(kind, id)
	return id, ok
}
