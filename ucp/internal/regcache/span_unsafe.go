package regcache

import "unsafe"

// span is a range of addresses, which stay those of the same memory as long as somebody
// holds that; see the package comment.
type span struct{ start, end uintptr }

// spanOf is where buf lies.
func spanOf(buf []byte) span {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	return span{start, start + uintptr(len(buf))}
}

// len is the length in bytes.
func (s span) len() uint64 { return uint64(s.end - s.start) }

// covers reports whether o lies in s.
func (s span) covers(o span) bool { return s.start <= o.start && o.end <= s.end }

// overlaps reports whether s and o have a byte in common.
func (s span) overlaps(o span) bool { return s.start < o.end && o.start < s.end }
