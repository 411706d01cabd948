package config

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Infinite is the duration written as inf: no limit.
const Infinite = time.Duration(math.MaxInt64)

// timeUnits are the suffixes, longer ones first, because several of them end in "s".
var timeUnits = []struct {
	suffix string
	unit   time.Duration
}{
	{"ns", time.Nanosecond},
	{"us", time.Microsecond},
	{"ms", time.Millisecond},
	{"s", time.Second},
	{"m", time.Minute},
}

const durationGrammar = "time: number with optional unit ns, us, ms, s or m (default s); inf or auto"

// ParseDuration parses a duration in UCX's grammar: "20us", "1.5s", "inf" ([Infinite]) or "auto" (0). A number without
// a unit is in seconds. Fractions of a nanosecond are rounded down.
func ParseDuration(s string) (time.Duration, error) {
	s = strings.ToLower(s)
	switch s {
	case "auto":
		return 0, nil
	case "inf":
		return Infinite, nil
	}
	unit := time.Second
	for _, u := range timeUnits {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = number, u.unit
			break
		}
	}
	v, err := scaleDecimal(s, uint64(unit), math.MaxInt64-1)
	return time.Duration(v), err
}

// FormatDuration returns d in the grammar of ParseDuration, as an integer in the largest possible unit. d must not be
// negative.
func FormatDuration(d time.Duration) string {
	switch d {
	case 0:
		return "auto"
	case Infinite:
		return "inf"
	}
	best := timeUnits[0]
	for _, u := range timeUnits {
		if d%u.unit == 0 {
			best = u
		}
	}
	return strconv.FormatInt(int64(d/best.unit), 10) + best.suffix
}
