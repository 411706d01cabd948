// Package shortcopy copies messages, most of which are a few words.
package shortcopy

import "encoding/binary"

// Copy is copy(dst, src), which it is for any length. A length of 8 to 16 bytes takes a dozen
// instructions and no call, so that the caller has no registers to save either; where a call
// of memmove counts, that is most of what a short message costs.
func Copy(dst, src []byte) int {
	n := len(src)
	if n < word || n > 2*word || n > len(dst) {
		return copy(dst, src)
	}
	Words(dst, src)
	return n
}

// Words is Copy for one to two words, which dst has room for.
func Words(dst, src []byte) {
	n := len(src)
	first, last := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[n-word:n:n])
	binary.LittleEndian.PutUint64(dst, first)
	binary.LittleEndian.PutUint64(dst[n-word:n:n], last)
}

const word = 8 // bytes
