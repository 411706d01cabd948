package handle

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
)

// tagBlock is the number of tags that are read at once: a signal does not interrupt getrandom(2) of up to
// 256 bytes.
const tagBlock = 64

// tags are random numbers of 32 bits, none of which is 0.
type tags struct {
	remaining uint // of block, unused
	block     [tagBlock]uint32
}

// next returns a number that was not returned before, if any is left.
func (t *tags) next() uint32 {
	t.remaining--
	return t.block[t.remaining%tagBlock]
}

// fill reads the next block. It does not allocate. rand.Read does not fail: it ends the
// process first.
//
//go:noinline
func (t *tags) fill() {
	var b [tagBlock * 4]byte
	for ok := false; !ok; ok = !slices.Contains(t.block[:], 0) {
		rand.Read(b[:])
		for i := range t.block {
			t.block[i] = binary.NativeEndian.Uint32(b[4*i:])
		}
	}
	t.remaining = tagBlock
}
