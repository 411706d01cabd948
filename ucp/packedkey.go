package ucp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// Limits of a packed key.
const (
	keyMagic   = 0x4b // 'K'
	keyVersion = 1
	keyHeader  = 28
	maxKeyLen  = keyHeader + wireup.MaxMDs*(2+math.MaxUint8)
)

// packedKey is a remote key as it travels; docs/wire.md, "Remote key".
type packedKey struct {
	region uint64 // names the memory for atomics that the target executes
	addr   uint64
	length uint64
	access uct.Access
	parts  []keyPart
}

// keyPart is the key of one memory domain of the target.
type keyPart struct {
	md  uint8 // index in the target's worker address
	key []byte
}

// pack makes the key of m.
func (m *Mem) pack() ([]byte, error) {
	k := packedKey{region: m.id, addr: m.addr, length: uint64(len(m.bytes)), access: m.access}
	for i, p := range m.parts {
		if p == nil {
			continue
		}
		key, err := p.PackRKey(nil)
		if err != nil {
			return nil, err
		}
		if len(key) > math.MaxUint8 {
			return nil, fmt.Errorf("remote key of %d bytes: %w", len(key), ucs.ErrTooLong)
		}
		k.parts = append(k.parts, keyPart{md: uint8(i), key: key})
	}
	return k.append(nil), nil
}

func (k *packedKey) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, keyMagic, keyVersion, byte(k.access), byte(len(k.parts)))
	b = le.AppendUint64(b, k.region)
	b = le.AppendUint64(b, k.addr)
	b = le.AppendUint64(b, k.length)
	for _, p := range k.parts {
		b = append(b, p.md, byte(len(p.key)))
		b = append(b, p.key...)
	}
	return b
}

// unpackKey checks and decodes a key, which may come from a stranger. The result
// shares nothing with b. ErrInvalidRKey.
func unpackKey(b []byte) (*packedKey, error) {
	if len(b) < keyHeader || len(b) > maxKeyLen || b[0] != keyMagic || b[1] != keyVersion {
		return nil, badKey("not a remote key of version %d", keyVersion)
	}
	le := binary.LittleEndian
	k := &packedKey{access: uct.Access(b[2]), region: le.Uint64(b[4:]), addr: le.Uint64(b[12:]), length: le.Uint64(b[20:])}
	count := int(b[3])
	if k.access&^uct.AccessAll != 0 || count > wireup.MaxMDs {
		return nil, badKey("access %#x, %d parts", b[2], count)
	}
	if k.length == 0 || k.addr+k.length-1 < k.addr {
		return nil, badKey("%d bytes at %#x", k.length, k.addr)
	}
	rest := b[keyHeader:]
	for range count {
		if len(rest) < 2 || len(rest)-2 < int(rest[1]) || int(rest[0]) >= wireup.MaxMDs || k.find(int(rest[0])) != nil {
			return nil, badKey("malformed part")
		}
		n := 2 + int(rest[1])
		k.parts = append(k.parts, keyPart{md: rest[0], key: append([]byte{}, rest[2:n]...)})
		rest = rest[n:]
	}
	if len(rest) != 0 {
		return nil, badKey("%d bytes after the last part", len(rest))
	}
	return k, nil
}

// find returns the key of a memory domain of the target; nil if there is none.
func (k *packedKey) find(md int) []byte {
	for i := range k.parts {
		if int(k.parts[i].md) == md {
			return k.parts[i].key
		}
	}
	return nil
}

// holds reports whether n bytes at addr are in the region.
func (k *packedKey) holds(addr, n uint64) bool {
	return addr >= k.addr && addr-k.addr <= k.length && n <= k.length-(addr-k.addr)
}

func badKey(format string, args ...any) error {
	return fmt.Errorf("ucp: "+format+": %w", append(args, ucs.ErrInvalidRKey)...)
}

// randomID returns a random number that is not 0.
func randomID() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never returns an error since Go 1.24
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}
