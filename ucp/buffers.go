package ucp

import "math/bits"

// buffers is the pool of buffers for data without a posted receive. There are four sizes for each power of two, so
// a buffer is at most a quarter longer than its data. Free buffers are stored up to a limit, so the memory of a flood of
// messages is freed.
type buffers struct {
	free [bufferClasses][][]byte
	idle int // bytes of the free buffers
}

const (
	minBufferBits = 6  // 64 bytes, the smallest size
	maxBufferBits = 24 // 16 MiB, the largest size in the pool
	bufferClasses = 4*(maxBufferBits-minBufferBits) + 1
	// maxIdleBuffers is the limit of idle, in bytes.
	maxIdleBuffers = 4 << 20
)

// classOf returns the class of the smallest buffers of at least n bytes. It is beyond the last class if n is larger than
// the largest size.
func classOf(n int) int {
	last := uint(max(n, 1<<minBufferBits) - 1)
	shift := bits.Len(last) - 3 // the highest bit remains, and two bits that select one of the four sizes
	return 4*(shift-minBufferBits+2) + int(last>>shift) - 3
}

// sizeOf returns the length of the buffers of a class in bytes.
func sizeOf(class int) int {
	quarter := class + 3
	return (quarter%4 + 5) << (quarter/4 + minBufferBits - 3)
}

// get returns a buffer of n bytes, which belongs to the caller until put. It is not cleared.
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

// put returns a buffer of get.
func (b *buffers) put(buf []byte) {
	c := classOf(cap(buf))
	if c >= bufferClasses || b.idle+cap(buf) > maxIdleBuffers {
		return
	}
	b.idle += cap(buf)
	b.free[c] = append(b.free[c], buf)
}
