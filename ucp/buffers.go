package ucp

import "math/bits"

// buffers keep what no receive has been posted for, in pieces of four sizes for each power of two, so that
// a buffer is at most a quarter longer than what is in it. Those that are not in use stay, up to a bound: a
// flood leaves nothing behind.
type buffers struct {
	free [bufferClasses][][]byte
	idle int // bytes that are free
}

const (
	minBufferBits = 6  // 64 bytes, the shortest
	maxBufferBits = 24 // 16 MiB, the longest that is kept
	bufferClasses = 4*(maxBufferBits-minBufferBits) + 1
	// maxIdleBuffers is how much is kept for the next messages, in bytes.
	maxIdleBuffers = 4 << 20
)

// classOf is the class of buffers that hold n bytes; one past the last or more if none does.
func classOf(n int) int {
	last := uint(max(n, 1<<minBufferBits) - 1)
	shift := bits.Len(last) - 3 // leaves the highest bit, and two that are the quarter
	return 4*(shift-minBufferBits+2) + int(last>>shift) - 3
}

// sizeOf is the length in bytes of the buffers of a class.
func sizeOf(class int) int {
	quarter := class + 3
	return (quarter%4 + 5) << (quarter/4 + minBufferBits - 3)
}

// get returns n bytes, which are not cleared.
func (b *buffers) get(n int) []byte {
	c := classOf(n)
	if c >= bufferClasses {
		return make([]byte, n)
	}
	if s := b.free[c]; len(s) > 0 {
		buf := s[len(s)-1]
		s[len(s)-1] = nil
		b.free[c] = s[:len(s)-1]
		b.idle -= cap(buf)
		return buf[:n]
	}
	return make([]byte, n, sizeOf(c))
}

// put takes back what get has returned.
func (b *buffers) put(buf []byte) {
	c := classOf(cap(buf))
	if c >= bufferClasses || b.idle+cap(buf) > maxIdleBuffers {
		return
	}
	b.idle += cap(buf)
	b.free[c] = append(b.free[c], buf)
}
