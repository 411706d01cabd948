package wireup

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/gucx/gucx/uct"
)

// Time is a duration in an address: a floating-point number of 8 bits with
// an error of at most 1/16. Both sides of a connection compute with the rounded value.
type Time uint8

// Rate is a bandwidth in an address, in the same format.
type Rate uint8

// Size is a number of bytes in an address, in the same format, rounded down.
type Size uint8

// Units of Time and Rate.
const (
	timeUnit = 125     // picoseconds
	rateUnit = 1 << 20 // bytes per second
)

// timeOf returns the Time nearest to d; 0 if d is negative.
func timeOf(d time.Duration) Time {
	ps := uint64(max(0, min(d, math.MaxInt64/1000))) * 1000
	return Time(float8((ps + timeUnit/2) / timeUnit))
}

// rateOf returns the Rate nearest to a bandwidth in bytes per second, at least one unit.
func rateOf(bw float64) Rate {
	if !(bw > rateUnit) { // also a NaN
		return 1
	}
	return Rate(float8(uint64(min(bw, 1<<62)) / rateUnit))
}

// Picoseconds returns the value of t.
func (t Time) Picoseconds() uint64 { return unfloat8(uint8(t)) * timeUnit }

// BytesPerSecond returns the value of r, at least one unit.
func (r Rate) BytesPerSecond() uint64 { return unfloat8(max(uint8(r), 1)) * rateUnit }

// Bytes returns the value of s.
func (s Size) Bytes() uint64 { return unfloat8(uint8(s)) }

// float8 returns the code nearest to v: 5 bits of exponent and 3 bits of mantissa, with an implicit
// leading one. A code below 8 is the number itself.
func float8(v uint64) uint8 {
	if v < 8 {
		return uint8(v)
	}
	e := bits.Len64(v) - 4
	m := v >> e
	if e > 0 && v>>(e-1)&1 != 0 { // round up
		m++
	}
	code := uint64(e+1)<<3 + (m - 8) // a mantissa of 16 is 8 of the next exponent
	return uint8(min(code, math.MaxUint8))
}

// floor8 returns the largest Size of at most v bytes.
func floor8(v uint64) Size {
	c := float8(v)
	if unfloat8(c) > v {
		c--
	}
	return Size(c)
}

func unfloat8(c uint8) uint64 {
	if c < 8 {
		return uint64(c)
	}
	return uint64(8+c&7) << (c>>3 - 1)
}

// Cost is the cost of an operation of one class on a resource.
type Cost struct {
	Overhead  Time // of the CPU to post one operation
	Latency   Time // one way
	Bandwidth Rate
}

// costOf returns the cost of a class of operations: the smallest times and the largest bandwidth
// of its variants.
func costOf(attr *uct.IfaceAttr, variants ...uct.Variant) (out Cost) {
	const none = time.Duration(math.MaxInt64)
	overhead, latency := none, none
	for _, v := range variants {
		if !v.Claimed(attr) {
			continue
		}
		c := attr.Costs[v]
		cpu := c.Send + c.Recv
		if v <= uct.AMZcopy { // the cost of a pair is the sum of both sides
			cpu /= 2
		}
		overhead, latency = min(overhead, cpu), min(latency, c.Latency)
		bw := c.Bandwidth
		if c.SharedBandwidth > 0 {
			bw = min(bw, c.SharedBandwidth)
		}
		out.Bandwidth = max(out.Bandwidth, rateOf(float64(bw)))
	}
	if overhead != none {
		out.Overhead, out.Latency = timeOf(overhead), timeOf(latency)
	}
	return out
}

// Variants of the classes.
var (
	rmaVariants = []uct.Variant{uct.PutShort, uct.PutBcopy, uct.PutZcopy, uct.GetShort, uct.GetBcopy, uct.GetZcopy}
	amoVariants = []uct.Variant{uct.AtomicPost, uct.AtomicFetch}
	amVariants  = []uct.Variant{uct.AMShort, uct.AMBcopy, uct.AMZcopy}
)

// PairCost is the cost of a pair of resources for a role, in picoseconds: the terms of
// its score.
type PairCost struct {
	Latency  uint64 `json:"latency_ps"`     // one way; the mean of both sides
	Overhead uint64 `json:"overhead_ps"`    // of the CPU: the sum of both sides for am, am_bw and aux, else the mean
	Transfer uint64 `json:"transfer_ps"`    // of Size bytes at the smaller bandwidth
	Size     int    `json:"size,omitempty"` // in bytes; 0 if bandwidth does not matter
}

// String lists the terms of the sum in nanoseconds, in the order of [Choice.Terms].
func (c PairCost) String() string {
	ns := func(ps uint64) string {
		return strings.TrimSuffix(strconv.FormatFloat(float64(ps)/1000, 'f', 1, 64), ".0")
	}
	s := ns(c.Latency) + " + " + ns(c.Overhead)
	if c.Size > 0 {
		s += " + " + ns(c.Transfer)
	}
	return s + " ns"
}
