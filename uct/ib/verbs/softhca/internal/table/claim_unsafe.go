package table

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
type ClaimWord struct {
	atomic.Uint64
	_ [ClaimLen - 8]byte
}

const (
	ClaimLen   = 64
	ClaimsLen  = MaxXRCSRQ * ClaimLen
	claimShift = 16
)

var _ = [1]struct{}{}[unsafe.Sizeof(ClaimWord{})-ClaimLen]

// Claims are the claim words of a device, by the low 16 bits of the SRQ's number.
type Claims struct{ base unsafe.Pointer }

func ClaimsAt(mem []byte) Claims { return Claims{unsafe.Pointer(unsafe.SliceData(mem))} }

// None reports whether there are none.
func (c Claims) None() bool { return c.base == nil }

func (c Claims) Of(srqn uint32) *ClaimWord {
	return (*ClaimWord)(unsafe.Add(c.base, uintptr(srqn%MaxXRCSRQ)*ClaimLen))
}

// ClaimID is how a device with a GID is named in claim words: by 48 random bits.
func ClaimID(gid [2]uint64) uint64 { return gid[1]>>claimShift | 1 }

// Claimed is the word for receive seq and the device id, or 0.
func Claimed(id uint64, seq uint16) uint64 { return id<<claimShift | uint64(seq) }

// SplitClaim undoes claimed.
func SplitClaim(word uint64) (id uint64, seq uint16) { return word >> claimShift, uint16(word) }
