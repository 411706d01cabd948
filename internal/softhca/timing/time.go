package timing

import "strconv"

// Time is a moment or a span of virtual time in picoseconds. It overflows after 106
// days.
type Time int64

// Units.
const (
	Picosecond  Time = 1
	Nanosecond       = 1000 * Picosecond
	Microsecond      = 1000 * Nanosecond
	Second           = 1_000_000 * Microsecond
)

// Nanoseconds returns t in nanoseconds.
func (t Time) Nanoseconds() float64 { return float64(t) / float64(Nanosecond) }

// Seconds returns t in seconds.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

// String formats t in nanoseconds, with all digits.
func (t Time) String() string {
	return strconv.FormatFloat(t.Nanoseconds(), 'f', -1, 64) + "ns"
}

// ns returns a parameter in nanoseconds, rounded to a picosecond.
func ns(v float64) Time { return Time(v*float64(Nanosecond) + 0.5) }
