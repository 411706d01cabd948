package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Columns of ucx_perftest -v: the time per operation in microseconds with three decimals, and
// messages per second as an integer. Both are means over all iterations. In tests in one direction
// there is one more message, which ends the test at the target.
const (
	opsColumn   = "iterations"
	overallTime = "overall_lat"
	overallRate = "overall_mr"
	usecDigit   = 0.001 // of overallTime
	perSecond   = 1e9   // nanoseconds
	perUsec     = 1e3   // nanoseconds
	rounding    = 0.51  // of the last digit: half of it, and the error of float32
)

var errNoFigures = errors.New("no line of figures in the output")

// parseUCX parses the output of ucx_perftest -f -v, and returns the nanoseconds per operation, of
// ops operations; one way for ping-pongs. Columns are found by their names in the header line. Text
// before it, and progress lines, are ignored.
func parseUCX(out string, ops int) (ns float64, err error) {
	header, last, ok := csvLines(out)
	if !ok {
		return 0, fmt.Errorf("%w: %s", errNoFigures, tail(out))
	}
	usec, err := column(header, last, overallTime)
	if err != nil {
		return 0, err
	}
	rate, err := column(header, last, overallRate)
	if err != nil {
		return 0, err
	}
	n, err := column(header, last, opsColumn)
	if err != nil {
		return 0, err
	}
	if rate <= 0 || n < float64(ops) {
		return 0, fmt.Errorf("%s is %v, %s %v of %d", overallRate, rate, opsColumn, n, ops)
	}
	// The two values must agree. If not, the columns have another meaning than expected.
	byRate, byTime := perSecond/rate, usec*perUsec
	slack := rounding*(usecDigit*perUsec+byRate/rate) + byRate/n
	if math.Abs(byRate-byTime) > slack {
		return 0, fmt.Errorf("%s %v us and %s %v contradict each other", overallTime, usec, overallRate, rate)
	}
	if byTime >= perUsec {
		return byTime, nil // four digits or more; the rate may have three
	}
	return byRate, nil
}

// csvLines returns the fields of the header, and of the last line after it that has as many fields
// and begins with a number. Progress lines do not.
func csvLines(out string) (header, last []string, ok bool) {
	for _, line := range strings.Split(out, "\n") {
		f := strings.Split(strings.TrimSpace(line), ",")
		switch {
		case f[0] == opsColumn:
			header, last = f, nil
		case header != nil && len(f) == len(header) && isNumber(f[0]):
			last = f
		}
	}
	return header, last, last != nil
}

func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

// column returns the number in the column with that name.
func column(header, line []string, name string) (float64, error) {
	i := slices.Index(header, name)
	if i < 0 {
		return 0, fmt.Errorf("no column %s among %s", name, strings.Join(header, ","))
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(line[i]), 64)
	if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
		err = errNoFigures
	}
	if err != nil {
		return 0, fmt.Errorf("column %s: %w", name, err)
	}
	return v, nil
}
