package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/ucs/config"
)

// parseSizes reads a list of sizes and ranges: "8,1k", "1-1m", "1-1m/4". A range
// multiplies by 2, or by what follows the slash, and includes its upper end only
// if that is hit. The result is ascending without repetitions.
func parseSizes(list string) (sizes []int, err error) {
	for _, part := range strings.Split(list, ",") {
		more, err := parseRange(part)
		if err != nil {
			return nil, fmt.Errorf("size %q: %w", part, err)
		}
		sizes = append(sizes, more...)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

func parseRange(part string) (sizes []int, err error) {
	bounds, factorText, hasFactor := strings.Cut(part, "/")
	loText, hiText, isRange := strings.Cut(bounds, "-")
	lo, err := parseSize(loText)
	if err != nil {
		return nil, err
	}
	if !isRange {
		if hasFactor {
			return nil, fmt.Errorf("a factor belongs to a range")
		}
		return []int{lo}, nil
	}
	hi, err := parseSize(hiText)
	if err != nil {
		return nil, err
	}
	factor := 2
	if hasFactor {
		if factor, err = parseSize(factorText); err != nil {
			return nil, err
		}
	}
	if factor < 2 || hi < lo {
		return nil, fmt.Errorf("want LOW-HIGH or LOW-HIGH/FACTOR, with a factor of 2 or more")
	}
	for n := lo; n <= hi; n *= factor {
		sizes = append(sizes, n)
	}
	return sizes, nil
}

var errSize = errors.New("want a number of bytes, with k, m or g")

// parseSize reads one size in the grammar of the environment.
func parseSize(text string) (int, error) {
	var m config.MemSize
	if m.UnmarshalText([]byte(text)) != nil {
		return 0, errSize
	}
	n := m.Bytes(0)
	if n < 1 || n > bench.MaxSize {
		return 0, fmt.Errorf("outside 1..%d", bench.MaxSize)
	}
	return int(n), nil
}
