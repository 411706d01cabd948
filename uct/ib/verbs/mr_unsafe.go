package verbs

import "unsafe"

// Addr is the address of the first byte, as SGEs and peers name it.
func (mr *MR) Addr() uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mr.buf))))
}

// SGE names the part [off, off+n) of the region; it panics if that is outside.
func (mr *MR) SGE(off, n int) SGE {
	b := mr.buf[off : off+n]
	return SGE{Addr: mr.Addr() + uint64(off), Length: uint32(len(b)), LKey: mr.LKey()}
}
