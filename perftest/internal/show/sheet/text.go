package sheet

import (
	"fmt"
	"math"
	"strconv"
)

// Millions formats a float64 number per second in millions.
func Millions(v any) string { return Decimals(v.(float64)/1e6, 3) }

// Decimals formats v with n digits after the point; a value that is too small for two digits as "0.0012" or "1.2e-05".
func Decimals(v float64, n int) string {
	if a := math.Abs(v); a > 0 && a < math.Pow10(1-n) {
		return significant(v, 2)
	}
	return strconv.FormatFloat(v, 'f', n, 64)
}

// Nanoseconds formats a time in nanoseconds with at most seven characters and a sign: more than six digits have a unit,
// as in "1.04ms".
func Nanoseconds(ns float64) string {
	const ms, s = 1e6, 1e9
	switch a := math.Abs(ns); {
	case a < 100:
		return fmt.Sprintf("%.1f", ns)
	case a < ms-0.5:
		return fmt.Sprintf("%.0f", ns)
	case a < 999.5*ms:
		return significant(ns/ms, 3) + "ms"
	case a < 999.5*s:
		return significant(ns/s, 3) + "s"
	}
	return fmt.Sprintf("%.0fs", ns/s)
}

// significant formats v with n significant digits, without trailing zeros.
func significant(v float64, n int) string { return strconv.FormatFloat(v, 'g', n, 64) }

// Percent formats a float64 share.
func Percent(v any) string { return fmt.Sprintf("%.1f %%", 100*v.(float64)) }

// Short formats a float64 with three digits.
func Short(v any) string { return fmt.Sprintf("%.3g", v.(float64)) }

// KiB formats an int64 number of bytes.
func KiB(v any) string { return fmt.Sprintf("%.1f KiB", float64(v.(int64))/1024) }
