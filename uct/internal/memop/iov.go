package memop

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// Gather copies the pieces of iov one after the other to dst, which holds them
// all, and returns their length.
func Gather(dst []byte, iov []uct.IOV) int {
	n := 0
	for i := range iov {
		Copy(dst[n:], iov[i].Buf)
		n += len(iov[i].Buf)
	}
	return n
}

// PackShort writes a short active message to dst, which holds it: one word or two, then payload.
func PackShort(dst []byte, first, second uint64, words int, payload []byte) {
	const wordLen = 8
	binary.LittleEndian.PutUint64(dst, first)
	binary.LittleEndian.PutUint64(dst[wordLen:], second) // payload overwrites it if there is one word
	Copy(dst[words*wordLen:], payload)
}

// Scatter fills the pieces of iov one after the other from src, which is as long
// as all of them.
func Scatter(iov []uct.IOV, src []byte) {
	n := 0
	for i := range iov {
		Copy(iov[i].Buf, src[n:])
		n += len(iov[i].Buf)
	}
}

// Covers reports whether every piece of iov that names a memory handle lies inside
// its registration.
func Covers(iov []uct.IOV) bool {
	for i := range iov {
		if m := iov[i].Mem; m != nil && !inside(m.Bytes(), iov[i].Buf) {
			return false
		}
	}
	return true
}

// CheckIOV holds iov against the limits of a zero-copy operation and returns its length.
// Errors: ErrTooLong, ErrInvalidParam (a piece outside its memory handle).
func CheckIOV(iov []uct.IOV, maxIOV, maxLen int) (int, error) {
	n := uct.IOVLen(iov)
	if len(iov) > maxIOV || n > maxLen {
		return 0, uct.ErrTooLong
	}
	if !Covers(iov) {
		return 0, uct.ErrInvalidParam
	}
	return n, nil
}
