package tcp

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/gucx/gucx/uct"
)

// wireKey names registered memory of a peer: the place in its table, how often
// that place was used before, and a random number that cannot be guessed.
type wireKey struct {
	index   uint32
	variant uint32
	nonce   uint64
}

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

// keyring holds the unpacked keys of peers; uct.RKey.Handle is a place in it. Any
// goroutine may add and remove; readers take no lock: a place is written before
// its number is handed out, and the slice is replaced when it grows.
type keyring struct {
	slots atomic.Pointer[[]wireKey]

	mu   sync.Mutex
	used int
	free []uint32
}

func (r *keyring) add(k wireKey) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.free) - 1; last >= 0 {
		i := r.free[last]
		r.free = r.free[:last]
		(*r.slots.Load())[i] = k
		return uint64(i)
	}
	var slots []wireKey
	if p := r.slots.Load(); p != nil {
		slots = *p
	}
	if r.used == len(slots) {
		grown := make([]wireKey, max(64, 2*len(slots)))
		copy(grown, slots)
		slots = grown
		r.slots.Store(&grown)
	}
	slots[r.used] = k
	r.used++
	return uint64(r.used - 1)
}

func (r *keyring) remove(i uint64) {
	r.mu.Lock()
	r.free = append(r.free, uint32(i))
	r.mu.Unlock()
}

// get returns the key of a handle; ok is false for a number that was never one.
func (r *keyring) get(i uint64) (k wireKey, ok bool) {
	p := r.slots.Load()
	if p == nil || i >= uint64(len(*p)) {
		return k, false
	}
	return (*p)[i], true
}
