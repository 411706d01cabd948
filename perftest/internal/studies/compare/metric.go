package compare

import "fmt"

// Metric is the unit of a printed result. All metrics are computed from nanoseconds per operation.
type Metric uint8

// Metrics.
const (
	// Time of one operation, one way for ping-pongs. Less is better.
	Time Metric = iota
	// Rate of operations. More is better.
	Rate
	// Bandwidth of the data. More is better.
	Bandwidth
)

// Units for machines, by metric.
var unitNames = [...]string{Time: "ns", Rate: "M/s", Bandwidth: "GB/s"}

// Unit is the unit of the values of m: ns, millions per second, or 10^9 bytes per second.
func (m Metric) Unit() string { return unitNames[m] }

// MarshalText writes the unit.
func (m Metric) MarshalText() ([]byte, error) { return []byte(m.Unit()), nil }

// value converts nanoseconds per operation of size bytes; ns must be positive.
func (m Metric) value(ns float64, size int) float64 {
	switch m {
	case Rate:
		return 1e3 / ns
	case Bandwidth:
		return float64(size) / ns
	}
	return ns
}

// ratio returns our value divided by that of UCX; both arguments are nanoseconds.
func (m Metric) ratio(oursNS, theirsNS float64) float64 {
	if m == Time {
		return oursNS / theirsNS
	}
	return theirsNS / oursNS
}

// reached reports whether the ratio meets the goal.
func (m Metric) reached(ratio, goal float64) bool {
	if m == Time {
		return ratio <= goal
	}
	return ratio >= goal
}

// goalText returns the goal as text.
func (m Metric) goalText(goal float64) string {
	if m == Time {
		return fmt.Sprintf("≤ %.2f", goal)
	}
	return fmt.Sprintf("≥ %.1f", goal)
}

// manyNS is the time from which times are printed in microseconds.
const manyNS = 10_000

// scale returns the divisor for values around v, and the unit of the result.
func (m Metric) scale(v float64) (by float64, unit string) {
	if m == Time && v >= manyNS {
		return 1000, "us"
	}
	return 1, m.Unit()
}

// digits formats a number with three digits or more.
func digits(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
