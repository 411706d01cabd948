package kernel

import "math"

const (
	// limbs is the number of integers with the digits of a Sum.
	limbs = 6
	// limbBits is the number of bits of a term in each of them. The rest of the integer is for carries: it is
	// sufficient for 2^31 terms.
	limbBits = 32
	// fraction is the weight of the lowest bit: 2^-fraction.
	fraction = 128
	// topShift is the highest position of the lowest bit of a mantissa at which all bits have limbs.
	topShift = (limbs-2)*limbBits - 1
)

// Fields of a float64.
const (
	mantissaBits = 52
	exponentMask = 0x7ff
	exponentBias = 1023 + mantissaBits // exponent of the lowest bit of the mantissa
)

// Sum is an exact sum of numbers below 2^52 in absolute value: an integer with many digits. So it does not depend on
// the order of the terms, nor on the ranks that added them. Bits of a term below 2^-128 are dropped. The last element
// counts terms that are too large or no numbers. The zero value is 0.
type Sum [limbs + 1]int64

// Add adds a term.
func (s *Sum) Add(v float64) {
	b := math.Float64bits(v)
	exponent := int(b>>mantissaBits) & exponentMask
	m := b & (1<<mantissaBits - 1)
	if exponent == 0 {
		return // 0, or below 2^-1022
	}
	m |= 1 << mantissaBits
	shift := exponent - exponentBias + fraction
	switch {
	case shift > topShift:
		s[limbs]++
		return
	case shift < 0:
		m >>= uint(-shift) // 0 if all bits are below
		shift = 0
	}
	i, bit := shift/limbBits, uint(shift%limbBits)
	low, high := m<<bit, m>>(64-bit)
	sign := int64(1) - int64(b>>63)<<1
	s[i] += sign * int64(low&(1<<limbBits-1))
	s[i+1] += sign * int64(low>>limbBits)
	s[i+2] += sign * int64(high)
}

// Value rounds the sum; NaN if there are terms that are too large or no numbers.
func (s *Sum) Value() (v float64) {
	if s[limbs] != 0 {
		return math.NaN()
	}
	digits := *s
	for i := range limbs - 1 {
		carry := digits[i] >> limbBits // rounds down
		digits[i+1] += carry
		digits[i] -= carry << limbBits
	}
	for i := limbs - 1; i >= 0; i-- {
		v += math.Ldexp(float64(digits[i]), limbBits*i-fraction)
	}
	return v
}
