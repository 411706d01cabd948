package table

import (
	"sync/atomic"
	"unsafe"
)

// ClaimWord is the number of the next receive of an XRC SRQ to fill, and the device that is filling
// it. Peers write it: a device claims a receive, fills it, puts a notice into its request ring,
// and then advances the word to the next receive. The owner accepts only values that agree with
// the posted receives.
//
//	63..16  ClaimID of the device, or 0    15..0  number of the receive
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

// ClaimID returns the 48 random bits that identify the device with a GID in claim words.
func ClaimID(gid [2]uint64) uint64 { return gid[1]>>claimShift | 1 }

// Claimed returns the word for receive seq and the device id, or 0 for none.
func Claimed(id uint64, seq uint16) uint64 { return id<<claimShift | uint64(seq) }

// SplitClaim is the inverse of Claimed.
func SplitClaim(word uint64) (id uint64, seq uint16) { return word >> claimShift, uint16(word) }
