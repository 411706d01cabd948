// Package sums is the package that the test of mutate mutates.
package sums

import "errors"

// ErrTooLarge is returned for sums that are too large.
var ErrTooLarge = errors.New("too large")

// Most is the largest sum.
const Most = 100

// Add adds up to Most.
func Add(a, b int) (int, error) {
	if err := check(a + b); err != nil {
		return 0, err
	}
	return a + b, nil
}

func check(sum int) error {
	if sum > Most {
		return ErrTooLarge
	}
	return nil
}

// Count counts down from n.
func Count(n int) (steps int) {
	for n > 0 {
		n--
		steps++
	}
	return steps
}

// NotTested has no test.
func NotTested(n int) int { return n + 1 }
