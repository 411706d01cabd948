package regcache

import "unsafe"

// span is a range of addresses. It means the same memory as long as there is a reference to that
// memory; see the package comment.
type span struct{ start, end uintptr }

// spanOf returns the addresses of buf.
func spanOf(buf []byte) span {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	return span{start, start + uintptr(len(buf))}
}

// len returns the length in bytes.
func (s span) len() uint64 { return uint64(s.end - s.start) }

// covers reports whether s contains o.
func (s span) covers(o span) bool { return s.start <= o.start && o.end <= s.end }

// overlaps reports whether s and o have at least one byte in common.
func (s span) overlaps(o span) bool { return s.start < o.end && o.start < s.end }
