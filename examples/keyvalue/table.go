package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/fnv"
)

// A table is slots of slotLen bytes, all numbers little endian:
//
//	0  u32  checksum of the rest, up to the end of the value
//	4  u16  length of the key; 0 means that the slot is empty
//	6  u16  length of the value
//	8  key, value
//
// The hash of a key selects the slot at which its search begins. The key is in the first slot from there that was
// empty when the key was set. If a client reads a slot while the server writes it, the checksum is
// wrong, and the client reads again.
const (
	slotLen    = 256
	slotHead   = 8
	maxContent = slotLen - slotHead // of a key and its value together
)

// Errors of the table. errTorn: a slot was read while it was written.
var (
	errNoKey   = errors.New("no such key")
	errFull    = errors.New("the table is full")
	errTooLong = errors.New("key and value are too long, or the key is empty")
	errTorn    = errors.New("the slot was being written")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// home is the number of the slot at which the search for a key begins.
func home(key string, slots uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key))
	return h.Sum64() % slots
}

// fits reports whether key and value fit into a slot.
func fits(key, value string) bool { return key != "" && len(key)+len(value) <= maxContent }

// writeSlot writes a key and a value that fit.
func writeSlot(slot []byte, key, value string) {
	binary.LittleEndian.PutUint16(slot[4:], uint16(len(key)))
	binary.LittleEndian.PutUint16(slot[6:], uint16(len(value)))
	n := slotHead + copy(slot[slotHead:], key)
	n += copy(slot[n:], value)
	binary.LittleEndian.PutUint32(slot, crc32.Checksum(slot[4:n], castagnoli))
}

// readSlot reads a slot, which is untrusted. An empty slot has an empty key.
func readSlot(slot []byte) (key, value string, err error) {
	k, v := int(binary.LittleEndian.Uint16(slot[4:])), int(binary.LittleEndian.Uint16(slot[6:]))
	end := slotHead + k + v
	switch {
	case k == 0:
		return "", "", nil
	case end > len(slot), binary.LittleEndian.Uint32(slot) != crc32.Checksum(slot[4:end], castagnoli):
		return "", "", errTorn
	}
	return string(slot[slotHead : slotHead+k]), string(slot[slotHead+k : end]), nil
}
