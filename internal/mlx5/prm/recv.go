package prm

import "github.com/gucx/gucx/uct/ib/verbs"

// invalidLKey in a data pointer of length 0 ends the list of a receive WQE that
// has fewer pointers than its queue allows (mlx5dv.h, MLX5_INVALID_LKEY).
const invalidLKey = 0x100

// SRQNextLen is the length of the next segment, which precedes the data pointers
// of an SRQ entry.
const SRQNextLen = 16

// EncodeRecv writes the data pointers of a receive entry, which has one unit for
// each pointer that the queue allows. It omits SGEs of length 0, and writes at most
// len(entry) SGEs; the caller has checked their number.
func EncodeRecv(entry []Seg, sges []verbs.SGE) {
	n := 0
	for i := range sges {
		if sges[i].Length != 0 && n < len(entry) {
			PutData(&entry[n], sges[i])
			n++
		}
	}
	if n < len(entry) {
		be.PutUint64(entry[n][0:8], invalidLKey)
		be.PutUint64(entry[n][8:16], 0)
	}
}

// DecodeRecv reads the data pointers of a receive entry and returns their number and the total number of
// bytes. The syndrome is SyndromeLocalQPOp if a pointer is malformed.
func DecodeRecv(entry []Seg, out *SGList) (n int, total uint64, syn Syndrome) {
	for i := range entry {
		sge := loadData(&entry[i])
		if sge.LKey == invalidLKey && sge.Length == zeroIsLen {
			break
		}
		if n == len(out) || sge.Length > zeroIsLen {
			return 0, 0, SyndromeLocalQPOp
		}
		out[n] = sge
		total += uint64(sge.Length)
		n++
	}
	return n, total, SyndromeOK
}

// loadData reads a data pointer. As for hardware, a length of 0 means 2^31.
// A length with bit 31 set becomes malformedLen.
func loadData(s *Seg) verbs.SGE {
	w := be.Uint64(s[0:8])
	sge := verbs.SGE{Addr: be.Uint64(s[8:16]), Length: uint32(w >> 32), LKey: uint32(w)}
	switch {
	case sge.Length == 0:
		sge.Length = zeroIsLen
	case sge.Length&inlineBit != 0:
		sge.Length = malformedLen
	}
	return sge
}

// malformedLen is the result for a byte count with bit 31 set.
const malformedLen = 1<<32 - 1

// PutSRQNext writes the next segment of an SRQ entry.
func PutSRQNext(s *Seg, next uint16) {
	le.PutUint64(s[0:8], pair(uint32(next), 0))
	be.PutUint64(s[8:16], 0)
}

// SRQNext reads the index of the entry after this one.
func SRQNext(s *Seg) uint16 { return be.Uint16(s[2:4]) }
