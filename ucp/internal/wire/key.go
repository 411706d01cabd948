package wire

import (
	"bytes"
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

// Key is a remote key in the form that is sent to peers; docs/wire.md, "Remote key".
type Key struct {
	Region uint64 // id of the memory, for operations that the target executes
	Addr   uint64
	Length uint64
	Access uct.Access
	Parts  []KeyPart
}

// KeyPart is the key of one memory domain of the target.
type KeyPart struct {
	MD  uint8 // index in the target's worker address
	Key []byte
}

// Add adds the key of m in the memory domain with the index md. Errors: ErrTooLong if the key has more than 255 bytes; those
// of Mem.PackRKey.
func (k *Key) Add(md int, m uct.Mem) error {
	key, err := m.PackRKey(nil)
	if err != nil {
		return err
	}
	if len(key) > math.MaxUint8 {
		return fmt.Errorf("remote key of %d bytes: %w", len(key), ucs.ErrTooLong)
	}
	k.Parts = append(k.Parts, KeyPart{MD: uint8(md), Key: key})
	return nil
}

// Append appends the packed key.
func (k *Key) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, keyMagic, keyVersion, byte(k.Access), byte(len(k.Parts)))
	b = le.AppendUint64(b, k.Region)
	b = le.AppendUint64(b, k.Addr)
	b = le.AppendUint64(b, k.Length)
	for _, p := range k.Parts {
		b = append(b, p.MD, byte(len(p.Key)))
		b = append(b, p.Key...)
	}
	return b
}

// UnpackKey checks and decodes a packed key. The key may come from an untrusted peer, which may write to b during the
// call. The result does not refer to b. ErrInvalidRKey.
func UnpackKey(b []byte) (*Key, error) {
	if len(b) < keyHeader || len(b) > maxKeyLen {
		return nil, notKey()
	}
	b = bytes.Clone(b) // the peer cannot change the copy after it was checked
	if b[0] != keyMagic || b[1] != keyVersion {
		return nil, notKey()
	}
	le := binary.LittleEndian
	k := &Key{Access: uct.Access(b[2]), Region: le.Uint64(b[4:]), Addr: le.Uint64(b[12:]), Length: le.Uint64(b[20:])}
	count := int(b[3])
	if k.Access&^uct.AccessAll != 0 || count > wireup.MaxMDs {
		return nil, BadKey("access %#x, %d parts", b[2], count)
	}
	if k.Length == 0 || k.Addr+k.Length-1 < k.Addr {
		return nil, BadKey("%d bytes at %#x", k.Length, k.Addr)
	}
	rest := b[keyHeader:]
	for range count {
		if len(rest) < 2 || len(rest)-2 < int(rest[1]) || int(rest[0]) >= wireup.MaxMDs || k.Find(int(rest[0])) != nil {
			return nil, BadKey("malformed part")
		}
		n := 2 + int(rest[1])
		k.Parts = append(k.Parts, KeyPart{MD: rest[0], Key: rest[2:n:n]})
		rest = rest[n:]
	}
	if len(rest) != 0 {
		return nil, BadKey("%d bytes after the last part", len(rest))
	}
	return k, nil
}

func notKey() error { return BadKey("not a remote key of version %d", keyVersion) }

// Find returns the key of a memory domain of the target; nil if there is none.
func (k *Key) Find(md int) []byte {
	for i := range k.Parts {
		if int(k.Parts[i].MD) == md {
			return k.Parts[i].Key
		}
	}
	return nil
}

// Contains reports whether the n bytes at addr are in the region.
func (k *Key) Contains(addr, n uint64) bool {
	return addr >= k.Addr && addr-k.Addr <= k.Length && n <= k.Length-(addr-k.Addr)
}

// BadKey returns an error that wraps ErrInvalidRKey.
func BadKey(format string, args ...any) error {
	return fmt.Errorf("ucp: "+format+": %w", append(args, ucs.ErrInvalidRKey)...)
}

// RandomID returns a random number that is not 0, as the id of a region.
func RandomID() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never returns an error since Go 1.24
		if v := binary.LittleEndian.Uint64(b[:]); v != 0 {
			return v
		}
	}
}
