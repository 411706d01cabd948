package uct

import (
	"math"
	"math/bits"
	"time"
)

// Variant is an operation of an EP together with its buffer mode: short, bcopy or zcopy.
type Variant uint8

// Variants. Those before AtomicPost are in the order of the bits of Caps.
const (
	AMShort Variant = iota
	AMBcopy
	AMZcopy
	PutShort
	PutBcopy
	PutZcopy
	GetShort
	GetBcopy
	GetZcopy
	AtomicPost
	AtomicFetch
	QueueZcopy // QueueConn.SendZcopy

	NumVariants = iota
)

var variantNames = [NumVariants]string{
	"am_short", "am_bcopy", "am_zcopy", "put_short", "put_bcopy", "put_zcopy",
	"get_short", "get_bcopy", "get_zcopy", "atomic_post", "atomic_fetch", "queue_zcopy",
}

// String returns the name of the variant, which is also that of its capability.
func (v Variant) String() string {
	if int(v) < len(variantNames) {
		return variantNames[v]
	}
	return "unknown"
}

// Claimed reports whether an iface with these attributes has the variant.
func (v Variant) Claimed(a *IfaceAttr) bool {
	switch v {
	case AtomicPost:
		return a.Atomic.Post32|a.Atomic.Post64 != 0
	case AtomicFetch:
		return a.Atomic.Fetch32|a.Atomic.Fetch64 != 0
	case QueueZcopy:
		return a.Caps.Has(CapQueue)
	}
	return a.Caps&(1<<v) != 0
}

// Cost is the cost of one operation of a variant, either declared by the transport or measured on this
// machine (Measurer). The zero value is the cost of a variant that is not claimed. The layer above
// uses costs to choose between variants and between transports.
type Cost struct {
	Send    time.Duration // CPU time of the initiator for the post and the completion
	Recv    time.Duration // CPU time of the target; 0 if its CPU does not take part
	Latency time.Duration // from the post until the operation has taken effect, including the result of a get or fetch, without Send and Recv
	// Bandwidth is the bandwidth of one iface that is used alone, in bytes per second; 0 if the time does
	// not depend on the length.
	Bandwidth uint64
	// SharedBandwidth is the bandwidth that all processes of the host share, in bytes per second; 0
	// if Bandwidth is not shared.
	SharedBandwidth uint64
}

// Time returns the time of an operation with n bytes from the post until it has taken effect, on
// an idle transport, in picoseconds. It uses integer arithmetic, so that all
// processes get the same result. It never decreases as n grows.
func (c Cost) Time(n uint64) uint64 {
	base := uint64(min(max(c.Send+c.Recv+c.Latency, 0), math.MaxInt64/1000)) * 1000
	bw := c.Bandwidth
	if c.SharedBandwidth > 0 {
		bw = min(bw, c.SharedBandwidth)
	}
	if bw == 0 {
		return base
	}
	hi, lo := bits.Mul64(n, 1e12)
	if hi >= bw {
		return math.MaxUint64
	}
	transfer, _ := bits.Div64(hi, lo, bw)
	if sum, carry := bits.Add64(base, transfer, 0); carry == 0 {
		return sum
	}
	return math.MaxUint64
}

// Costs are the costs of all variants.
type Costs [NumVariants]Cost

// Set declares a cost for several variants.
func (cs *Costs) Set(c Cost, variants ...Variant) {
	for _, v := range variants {
		cs[v] = c
	}
}

// Declare sets the costs of the variants that a claims.
func (a *IfaceAttr) Declare(cs Costs) {
	for v := range Variant(NumVariants) {
		if v.Claimed(a) {
			a.Costs[v] = cs[v]
		}
	}
}
