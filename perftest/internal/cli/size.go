package cli

import (
	"fmt"

	"github.com/gucx/gucx/perftest/internal/measure/bench"
	"github.com/gucx/gucx/perftest/internal/show/quantity"
)

// parseSizes parses a list of sizes of at least one byte.
func parseSizes(list string) ([]int, error) { return sizesFrom(list, 1) }

// sizesFrom parses a list of sizes of at least so many bytes.
func sizesFrom(list string, least int) ([]int, error) {
	sizes, err := quantity.Sizes(list, least, bench.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("size %w", err)
	}
	return sizes, nil
}
