package memop

import (
	"encoding/binary"

	"github.com/gucx/gucx/uct"
)

// Gather copies the buffers of iov one after the other to dst, which must be large enough. It
// returns the total length.
func Gather(dst []byte, iov []uct.IOV) int {
	n := 0
	for i := range iov {
		Copy(dst[n:], iov[i].Buf)
		n += len(iov[i].Buf)
	}
	return n
}

// PackShort writes a short active message to dst, which must be large enough: one or two words of
// header, then payload.
func PackShort(dst []byte, first, second uint64, words int, payload []byte) {
	const wordLen = 8
	binary.LittleEndian.PutUint64(dst, first)
	binary.LittleEndian.PutUint64(dst[wordLen:], second) // if words is 1, payload overwrites it
	Copy(dst[words*wordLen:], payload)
}

// Scatter copies src to the buffers of iov one after the other. src must have their total length.
func Scatter(iov []uct.IOV, src []byte) {
	n := 0
	for i := range iov {
		Copy(iov[i].Buf, src[n:])
		n += len(iov[i].Buf)
	}
}

// Covers reports whether every buffer of iov with a memory handle is inside its registration.
func Covers(iov []uct.IOV) bool {
	for i := range iov {
		if m := iov[i].Mem; m != nil && !inside(m.Bytes(), iov[i].Buf) {
			return false
		}
	}
	return true
}

// CheckIOV checks the limits of a zcopy operation and returns the total length of iov. Errors:
// ErrTooLong, ErrInvalidParam (a buffer that is not inside its memory handle).
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
