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
//	0  u64  how often keys began or ended to move; odd while they move
//	8  u64  changes while the server is the primary, and alive; a reader that has not read it for about half a lease
//	        calls the server first
//
// Slot:
//
//	 0  u32  checksum of the rest, up to the end of the value
//	 4  u16  length of the key in bytes; 0 means that the slot is empty
//	 6  u16  length of the value in bytes
//	 8  u64  number of the update that wrote the slot
//	16  key, value
//
// A key is in the first slot that was empty when it was written, from the slot on that its hash selects. When a key is
// removed, keys behind it move to lower slots, so that no gap separates a key from its home. The table does not wrap
// around: spareSlots slots follow the last home.
//
// A reader that finds a wrong checksum has read a slot while it was written. Of such slots one in 2^32 has the right
// checksum by chance. A reader that does not find a key, although
// the header has not changed since before the search, knows that it is not there.
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
	MaxKey   = 250 // one byte of the slot: a reader does not get 0 for the half of a length
	MaxValue = 32 << 10
)

// maxLoad is which part of the slots may be in use, in percent.
const maxLoad = 75

// errTorn says that a slot was read while it was written.
var errTorn = errors.New("kvstore: the slot was being written")

// entry is what a slot has. key and value are in the slot.
type entry struct {
	key, value []byte
	number     uint64 // of the update that has written the entry
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readSlot reads a slot, which may hold anything. An empty slot has an empty key.
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

// shape is what clients must know of a table.
type shape struct {
	Slots   int // without spareSlots
	SlotLen int
}

// shapeFor returns the shape of a table for n keys of up to keyLen bytes with values of up to valueLen bytes.
func shapeFor(n, keyLen, valueLen int) shape {
	return shape{Slots: n*100/maxLoad + 1, SlotLen: (slotHead + keyLen + valueLen + 7) &^ 7}
}

// maxSlots bounds what a client believes of a server.
const maxSlots = 1 << 40

// valid reports that a shape of a server can be that of a table.
func (s shape) valid() bool {
	return s.Slots > 0 && s.Slots <= maxSlots && s.SlotLen >= slotHead && s.SlotLen <= shapeFor(1, MaxKey, MaxValue).SlotLen
}

// len is the length of a table in bytes.
func (s shape) len() int { return headerLen + (s.Slots+spareSlots)*s.SlotLen }

// offset is where slot i begins.
func (s shape) offset(i int) int { return headerLen + i*s.SlotLen }

// home is the slot at which the search for a key begins: FNV-1a of the key.
func home[K string | []byte](key K, slots int) int {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	return int((h ^ h>>32) % uint64(slots))
}

// table is the table of a server, in memory that clients read while it is written. The caller excludes other writers.
type table struct {
	shape
	mem   []byte
	used  int           // slots
	fence atomic.Uint32 // an atomic operation orders the stores before and after it
}

// slot is the memory of slot i.
func (t *table) slot(i int) []byte { return t.mem[t.offset(i):t.offset(i+1)] }

// at is the entry in slot i, which the server itself has written.
func (t *table) at(i int) entry {
	e, _ := readSlot(t.slot(i))
	return e
}

// end is behind the last slot.
func (t *table) end() int { return t.Slots + spareSlots }

// find returns the slot of a key, or where it can be written; found says which. No slot is left if i is t.end().
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

// put writes an entry, for which there is room.
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

// countMove says in the header that keys begin, or end, to move.
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
