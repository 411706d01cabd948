package layer

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// watch polls the first and the last byte of memory that a peer writes.
type watch struct {
	first, last   *atomic.Uint64 // the 8-byte words that contain the bytes
	firstS, lastS uint8          // shift of the byte in its word
}

// newWatch returns a watch of mem[:n] and clears both bytes. mem must be aligned to 8 bytes, and
// its length a multiple of 8.
func newWatch(mem []byte, n int) (watch, error) {
	if n < 1 || n > len(mem)&^(WordLen-1) {
		return watch{}, fmt.Errorf("%d bytes of a memory of %d cannot be watched", n, len(mem))
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%WordLen != 0 {
		return watch{}, fmt.Errorf("memory is not aligned to %d bytes", WordLen)
	}
	Stamp(mem[:n], 0)
	return watch{
		first: wordOf(mem, 0), firstS: shiftOf(0),
		last: wordOf(mem, n-1), lastS: shiftOf(n - 1),
	}, nil
}

// wordOf returns the word that contains byte i. Sound: the word is in mem, whose length newWatch
// has checked, and is aligned as mem is. The pointer keeps heap memory alive; mapped memory exists
// as long as its Conn, which owns the watch.
func wordOf(mem []byte, i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[i&^(WordLen-1)]))
}

// shiftOf returns the bit position of byte i in its word.
func shiftOf(i int) uint8 {
	var b [WordLen]byte
	b[i%WordLen] = 1
	for shift := uint8(0); ; shift += 8 {
		if binary.NativeEndian.Uint64(b[:])>>shift == 1 {
			return shift
		}
	}
}

// shows reports whether both bytes are v.
func (w *watch) shows(v byte) bool {
	return byte(w.last.Load()>>w.lastS) == v && byte(w.first.Load()>>w.firstS) == v
}
