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
	// MemAuto means that gucx chooses the size.
	MemAuto MemSize = 0
	// MemInf is no limit.
	MemInf MemSize = math.MaxUint64
	// MemZero is a size of 0 bytes: "0" in the environment. A program must use MemZero for that, because the value 0 is
	// MemAuto.
	MemZero MemSize = math.MaxUint64 - 1
	// maxMemSize is the largest number of bytes.
	maxMemSize = uint64(MemZero) - 1
)

var (
	errSyntax = errors.New("not in the grammar")
	errRange  = errors.New("out of range")
)

// memUnits are the suffixes in ascending order. Each unit is 1024 times the previous one.
const memUnits = "bkmgtpe"

// Bytes returns the size as a number of bytes: 0 for MemZero, math.MaxUint64 for MemInf, and the argument auto for
// MemAuto.
func (m MemSize) Bytes(auto uint64) uint64 {
	switch m {
	case MemAuto:
		return auto
	case MemZero:
		return 0
	}
	return uint64(m)
}

// String returns the size in the grammar of UnmarshalText, as an integer in the largest possible unit.
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

// UnmarshalText parses a size; see Grammar. A fraction of a byte is rounded down.
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
