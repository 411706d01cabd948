package config

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// MemSize is a number of bytes in a configuration. The zero value is MemAuto.
type MemSize uint64

const (
	// MemAuto leaves the choice to gucx.
	MemAuto MemSize = 0
	// MemInf is no limit.
	MemInf MemSize = math.MaxUint64
	// MemZero is an explicit zero: "0" in the environment. Write it in Go where a
	// size of no bytes is meant, as 0 is MemAuto.
	MemZero MemSize = math.MaxUint64 - 1
	// maxMemSize is the largest plain number of bytes.
	maxMemSize = uint64(MemZero) - 1
)

var (
	errSyntax = errors.New("not in the grammar")
	errRange  = errors.New("out of range")
)

// memUnits are the suffixes, from small to large; each is 1024 of the one before.
const memUnits = "bkmgtpe"

// Bytes is the size as a number: 0 for MemZero, the largest uint64 for MemInf, and
// auto for MemAuto.
func (m MemSize) Bytes(auto uint64) uint64 {
	switch m {
	case MemAuto:
		return auto
	case MemZero:
		return 0
	}
	return uint64(m)
}

// String returns the size as UnmarshalText reads it, with the largest unit that
// gives a whole number.
func (m MemSize) String() string {
	switch m {
	case MemAuto:
		return "auto"
	case MemInf:
		return "inf"
	case MemZero:
		return "0"
	}
	unit := min(bits.TrailingZeros64(uint64(m))/10, len(memUnits)-1)
	digits := strconv.FormatUint(uint64(m)>>(10*unit), 10)
	if unit == 0 {
		return digits
	}
	return digits + memUnits[unit:unit+1]
}

// MarshalText is String.
func (m MemSize) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a size; see Grammar. A fraction of a byte is cut off.
func (m *MemSize) UnmarshalText(text []byte) error {
	s := strings.ToLower(string(text))
	switch s {
	case "auto":
		*m = MemAuto
		return nil
	case "inf":
		*m = MemInf
		return nil
	}
	number, unit := cutMemUnit(s)
	v, err := scaleDecimal(number, 1<<(10*unit), maxMemSize)
	if err != nil {
		return err
	}
	*m = MemSize(v)
	if v == 0 {
		*m = MemZero
	}
	return nil
}

// Grammar describes the values.
func (MemSize) Grammar() string {
	return "memory size: number with optional unit b, k, m, g, t, p or e (powers of 1024); inf or auto"
}

// cutMemUnit splits "8kb" into "8" and the index of its unit in memUnits.
func cutMemUnit(s string) (number string, unit int) {
	number = strings.TrimSuffix(s, "b")
	if number == "" {
		return s, 0
	}
	if i := strings.IndexByte(memUnits[1:], number[len(number)-1]); i >= 0 {
		return number[:len(number)-1], i + 1
	}
	return number, 0
}
