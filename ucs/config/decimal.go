package config

import (
	"math/bits"
	"strings"
)

// scaleDecimal parses a non-negative decimal number, with or without a fraction, and returns its product with scale,
// rounded down. errRange if the product exceeds limit. It uses no floating point, so the result is exact.
func scaleDecimal(s string, scale, limit uint64) (uint64, error) {
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || point && fraction == "" {
		return 0, errSyntax
	}
	if !allDigits(whole) || !allDigits(fraction) {
		return 0, errSyntax
	}
	var v uint64
	for _, digit := range []byte(whole) {
		hi, lo := bits.Mul64(v, 10)
		sum, carry := bits.Add64(lo, uint64(digit-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, errRange
		}
		v = sum
	}
	hi, v := bits.Mul64(v, scale)
	if hi != 0 || v > limit {
		return 0, errRange
	}
	part := scaleFraction(fraction, scale)
	if part > limit-v {
		return 0, errRange
	}
	return v + part, nil
}

// scaleFraction returns scale times 0.digits, rounded down.
func scaleFraction(digits string, scale uint64) uint64 {
	// An exact result for any number of digits would need big numbers. 18 digits are more than the 64 bits of the
	// result can represent.
	const maxDigits = 18
	digits = digits[:min(len(digits), maxDigits)]
	var numerator, denominator uint64 = 0, 1
	for _, digit := range []byte(digits) {
		numerator = numerator*10 + uint64(digit-'0')
		denominator *= 10
	}
	hi, lo := bits.Mul64(numerator, scale)
	quotient, _ := bits.Div64(hi, lo, denominator)
	return quotient
}

// allDigits reports whether s consists of digits 0 to 9 only. It returns true for an empty s.
func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
