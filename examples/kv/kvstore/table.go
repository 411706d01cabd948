package kvstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync/atomic"
)

// A table is a header and slots of slotLen bytes. All numbers are little endian.
//
// Header:
//
//	0  u64  move counter: incremented before and after keys move; odd while they move
//	8  u64  beat counter: changes while the server is the primary and alive; a reader that has not read it for about
//	        half a lease calls the server first
//
// Slot:
//
//	 0  u32  checksum of the rest, up to the end of the value
//	 4  u16  length of the key in bytes; 0 means that the slot is empty
//	 6  u16  length of the value in bytes
//	 8  u64  number of the update that wrote the slot
//	16  key, value
//
// The hash of a key selects its home slot. A new key is written to the first empty slot from its home on (linear
// probing). When a key is removed, following keys move to lower slots, so that no empty slot is between a key and its
// home. The table does not wrap around: spareSlots slots follow the last home.
//
// A wrong checksum means that the server was writing the slot. One in 2^32 of such slots has the right checksum by
// chance. If a reader does not find a key and the move counter has not changed since before the search, the table does
// not have the key.
const (
	headerLen  = 64
	spareSlots = 64
	slotHead   = 16

	headMoves  = 0
	headBeat   = 8
	slotSum    = 0
	slotKeyLen = 4
	slotValLen = 6
	slotNumber = 8
)

// Config.Key and Config.Value are at most MaxKey and MaxValue bytes.
const (
	MaxKey   = 250 // fits in one byte, so that a torn read of the length is never 0
	MaxValue = 32 << 10
)

// maxLoad is the maximum share of used slots, in percent.
const maxLoad = 75

// errTorn means that a slot was read while the server was writing it.
var errTorn = errors.New("kvstore: the slot was being written")

// entry is the content of a slot. key and value are slices of the slot.
type entry struct {
	key, value []byte
	number     uint64 // number of the update that wrote the entry
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readSlot parses a slot with any content. The entry of an empty slot has an empty key. Error: errTorn.
func readSlot(slot []byte) (entry, error) {
	k, v := int(binary.LittleEndian.Uint16(slot[slotKeyLen:])), int(binary.LittleEndian.Uint16(slot[slotValLen:]))
	end := slotHead + k + v
	switch {
	case k == 0:
		return entry{}, nil
	case end > len(slot), binary.LittleEndian.Uint32(slot) != crc32.Checksum(slot[slotKeyLen:end], castagnoli):
		return entry{}, errTorn
	}
	return entry{slot[slotHead : slotHead+k], slot[slotHead+k : end], binary.LittleEndian.Uint64(slot[slotNumber:])}, nil
}

// writeSlot writes an entry that fits.
func writeSlot(slot []byte, e entry) {
	binary.LittleEndian.PutUint16(slot[slotKeyLen:], uint16(len(e.key)))
	binary.LittleEndian.PutUint16(slot[slotValLen:], uint16(len(e.value)))
	binary.LittleEndian.PutUint64(slot[slotNumber:], e.number)
	n := slotHead + copy(slot[slotHead:], e.key)
	n += copy(slot[n:], e.value)
	binary.LittleEndian.PutUint32(slot[slotSum:], crc32.Checksum(slot[slotKeyLen:n], castagnoli))
}

// shape is the layout of a table, which clients need.
type shape struct {
	Slots   int // number of slots without spareSlots
	SlotLen int
}

// shapeFor returns the shape of a table for n keys of up to keyLen bytes with values of up to valueLen bytes.
func shapeFor(n, keyLen, valueLen int) shape {
	return shape{Slots: n*100/maxLoad + 1, SlotLen: (slotHead + keyLen + valueLen + 7) &^ 7}
}

// maxSlots is the maximum number of slots that a client accepts from a server.
const maxSlots = 1 << 40

// valid reports whether a shape received from a server is valid.
func (s shape) valid() bool {
	return s.Slots > 0 && s.Slots <= maxSlots && s.SlotLen >= slotHead && s.SlotLen <= shapeFor(1, MaxKey, MaxValue).SlotLen
}

// len is the length of a table in bytes.
func (s shape) len() int { return headerLen + (s.Slots+spareSlots)*s.SlotLen }

// offset returns the offset of slot i in the table, in bytes.
func (s shape) offset(i int) int { return headerLen + i*s.SlotLen }

// home is the slot at which the search for a key begins: FNV-1a of the key.
func home[K string | []byte](key K, slots int) int {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return int((h ^ h>>32) % uint64(slots))
}

// table is the table of a server, in memory that clients read concurrently. The caller must serialize writers.
type table struct {
	shape
	mem   []byte
	used  int           // number of used slots
	fence atomic.Uint32 // an atomic operation on it orders the stores before and after
}

// slot returns the memory of slot i.
func (t *table) slot(i int) []byte { return t.mem[t.offset(i):t.offset(i+1)] }

// at returns the entry in slot i.
func (t *table) at(i int) entry {
	e, _ := readSlot(t.slot(i))
	return e
}

// end returns the number of slots, with spareSlots.
func (t *table) end() int { return t.Slots + spareSlots }

// find returns the slot of a key if found is true, otherwise the slot for a new key, or t.end() if there is none.
func (t *table) find(key []byte) (i int, found bool) {
	for i = home(key, t.Slots); i < t.end(); i++ {
		e := t.at(i)
		if len(e.key) == 0 || string(e.key) == string(key) {
			return i, len(e.key) > 0
		}
	}
	return i, false
}

// hasRoom reports whether the key is in the table, or can be added.
func (t *table) hasRoom(key []byte) bool {
	i, found := t.find(key)
	return found || i < t.end() && t.used*100 < t.Slots*maxLoad
}

// put writes an entry. The caller has checked hasRoom.
func (t *table) put(e entry) {
	i, found := t.find(e.key)
	if !found {
		t.used++
	}
	writeSlot(t.slot(i), e)
}

// remove removes a key. It reports whether the key was there.
func (t *table) remove(key []byte) bool {
	i, found := t.find(key)
	if !found {
		return false
	}
	t.used--
	t.countMove()
	for j := i + 1; j < t.end() && len(t.at(j).key) > 0; j++ {
		if home(t.at(j).key, t.Slots) <= i {
			copy(t.slot(i), t.slot(j))
			i = j
		}
	}
	clear(t.slot(i)[:slotHead])
	t.countMove()
	return true
}

// countMove increments the move counter, before and after keys move.
func (t *table) countMove() {
	t.fence.Add(1)
	binary.LittleEndian.PutUint64(t.mem[headMoves:], binary.LittleEndian.Uint64(t.mem[headMoves:])+1)
	t.fence.Add(1)
}

// clear removes all keys.
func (t *table) clear() {
	clear(t.mem[headerLen:])
	t.used = 0
}
