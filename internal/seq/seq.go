// Package seq has serial numbers that wrap: 16 and 32 bits for the packet numbers
// of gucx's own headers.
//
// Comparison is that of RFC 1982: a is before b if counting up from a reaches b in
// less than half the number space. Two numbers exactly half the space apart are
// not ordered: Less is false in both directions, and Diff is negative. A window of
// outstanding numbers must therefore be smaller than half the space.
package seq

// U16 is a serial number of 16 bits.
type U16 uint16

// Add returns a moved by n, which may be negative, around the wrap.
func (a U16) Add(n int) U16 { return a + U16(n) }

// Next is Add(1).
func (a U16) Next() U16 { return a + 1 }

// Diff returns the distance by which a is ahead of b: in [-1<<15, 1<<15).
func (a U16) Diff(b U16) int { return int(int16(a - b)) }

// Less says whether a comes before b.
func (a U16) Less(b U16) bool { return b.Diff(a) > 0 }

// LessEq says whether a comes before b or is b.
func (a U16) LessEq(b U16) bool { return b.Diff(a) >= 0 }

// U32 is a serial number of 32 bits.
type U32 uint32

// Add returns a moved by n, which may be negative, around the wrap.
func (a U32) Add(n int) U32 { return a + U32(n) }

// Next is Add(1).
func (a U32) Next() U32 { return a + 1 }

// Diff is how far a is ahead of b: in [-1<<31, 1<<31).
func (a U32) Diff(b U32) int { return int(int32(a - b)) }

// Less says whether a comes before b.
func (a U32) Less(b U32) bool { return b.Diff(a) > 0 }

// LessEq says whether a comes before b or is b.
func (a U32) LessEq(b U32) bool { return b.Diff(a) >= 0 }
