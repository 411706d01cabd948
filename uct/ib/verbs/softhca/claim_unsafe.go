package softhca

import (
	"sync/atomic"
	"unsafe"
)

// A claim word says which receive of an XRC SRQ is filled next, and which device is at
// it. Peers write it: who fills a receive claims it first, says in its request ring that
// it is filled, and then passes the word on to the receive after. The owner believes it as
// far as it goes with what is posted.
//
//	63..16  who is filling it, or 0    15..0  number of the receive
type claimWord struct {
	atomic.Uint64
	_ [claimLen - 8]byte
}

const (
	claimLen   = 64
	claimsLen  = maxXRCSRQ * claimLen
	claimShift = 16
)

var _ = [1]struct{}{}[unsafe.Sizeof(claimWord{})-claimLen]

// claims are the claim words of a device, by the low 16 bits of the SRQ's number.
type claims struct{ base unsafe.Pointer }

func claimsAt(mem []byte) claims { return claims{unsafe.Pointer(unsafe.SliceData(mem))} }

// none reports whether there are none.
func (c claims) none() bool { return c.base == nil }

func (c claims) of(srqn uint32) *claimWord {
	return (*claimWord)(unsafe.Add(c.base, uintptr(srqn%maxXRCSRQ)*claimLen))
}

// claimID is how a device with a GID is named in claim words: by 48 random bits.
func claimID(gid [2]uint64) uint64 { return gid[1]>>claimShift | 1 }

// claimed is the word for receive seq and the device id, or 0.
func claimed(id uint64, seq uint16) uint64 { return id<<claimShift | uint64(seq) }

// splitClaim undoes claimed.
func splitClaim(word uint64) (id uint64, seq uint16) { return word >> claimShift, uint16(word) }
