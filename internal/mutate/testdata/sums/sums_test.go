package sums

import (
	"os"
	"testing"
)

// TestBaseline fails in the baseline run.
func TestBaseline(t *testing.T) {
	if os.Getenv("MUTANT_TRACE") != "" {
		t.Error("this is the baseline run")
	}
}

// The test does not cover a sum of exactly Most.
func TestAdd(t *testing.T) {
	if n, err := Add(2, 3); n != 5 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if n, err := Add(99, 2); n != 0 || err != ErrTooLarge {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestCount(t *testing.T) {
	if n := Count(3); n != 3 {
		t.Errorf("got %d", n)
	}
}
