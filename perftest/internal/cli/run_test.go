package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRestCPUs(t *testing.T) {
	for _, c := range []struct {
		name          string
		allowed, cpus []int
		want          []int
	}{
		{"both are measured", []int{0, 1}, []int{1, 0}, []int{1}},
		{"others are free", []int{0, 1, 2, 5}, []int{1, 0}, []int{2, 5}},
		{"one CPU for both", []int{0, 3}, []int{3, 3}, []int{0}},
		{"one CPU", []int{4}, []int{4, 4}, []int{4}},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, restCPUs(c.allowed, c.cpus)) })
	}
}
