// Package pattern fills memory with bytes that differ from any other fill, from zeros and from a
// shifted copy.
package pattern

import (
	"encoding/binary"
	"fmt"
)

// Fill writes the pattern of seed to b. Two seeds that differ in any bit give patterns that differ
// in nearly every byte.
func Fill(b []byte, seed uint64) {
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		binary.LittleEndian.PutUint64(word[:], at(seed, i))
		copy(b[i:], word[:])
	}
}

// Byte returns the byte that Fill writes at an offset.
func Byte(seed uint64, offset int) byte {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], at(seed, offset&^7))
	return word[offset&7]
}

// Mismatch is the first difference between memory and a pattern.
type Mismatch struct {
	Offset    int
	Got, Want byte
	Len       int // number of checked bytes
}

// Error returns the offset and both bytes.
func (m *Mismatch) Error() string {
	return fmt.Sprintf("byte %d of %d is %#02x, want %#02x", m.Offset, m.Len, m.Got, m.Want)
}

// Check returns a *Mismatch for the first byte of b that differs from the pattern of seed.
func Check(b []byte, seed uint64) error {
	var word [8]byte
	for i := 0; i < len(b); i += len(word) {
		binary.LittleEndian.PutUint64(word[:], at(seed, i))
		for j, got := range b[i:min(i+len(word), len(b))] {
			if got != word[j] {
				return &Mismatch{Offset: i + j, Got: got, Want: word[j], Len: len(b)}
			}
		}
	}
	return nil
}

// at returns SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// 2014) of the seed at a byte offset.
func at(seed uint64, offset int) uint64 {
	z := seed + uint64(offset+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
