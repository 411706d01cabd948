package selection

import (
	"fmt"

	"github.com/gucx/gucx/wireup"
)

// Message sizes for which pairs are compared, in bytes. rmaSize is that of UCX: bandwidth and latency
// both matter. bandwidthSize is so large that bandwidth dominates.
const (
	rmaSize       = 4096
	bandwidthSize = 1 << 20
)

// costOf returns the cost of a pair for a role. Both sides compute the same value: it
// is in integer picoseconds, because another architecture may round floating-point numbers
// differently.
func costOf(role wireup.Role, l, r *wireup.Resource) wireup.PairCost {
	x, y := classCost(l, role), classCost(r, role)
	c := wireup.PairCost{
		Latency:  (x.Latency.Picoseconds() + y.Latency.Picoseconds()) / 2,
		Overhead: (x.Overhead.Picoseconds() + y.Overhead.Picoseconds()) / 2,
	}
	c.Size = size(role)
	switch role {
	case wireup.AM, wireup.AMBW, wireup.Aux:
		c.Overhead *= 2
	}
	if c.Size > 0 {
		c.Transfer = uint64(c.Size) * 1e12 / min(x.Bandwidth.BytesPerSecond(), y.Bandwidth.BytesPerSecond())
	}
	return c
}

// size returns the message size for which pairs are compared for a role, in bytes; 0 if bandwidth does
// not matter.
func size(role wireup.Role) int {
	switch role {
	case wireup.RMA:
		return rmaSize
	case wireup.RMABW, wireup.AMBW:
		return bandwidthSize
	}
	return 0
}

// classCost returns the cost of the class of operations of a role.
func classCost(r *wireup.Resource, role wireup.Role) *wireup.Cost {
	switch role {
	case wireup.RMA, wireup.RMABW:
		return &r.RMA
	case wireup.AMO:
		return &r.AMO
	default:
		return &r.AM
	}
}

// Bandwidth returns the bandwidth of a pair for a role, in bytes per second.
func Bandwidth(role wireup.Role, l, r *wireup.Resource) uint64 {
	return min(classCost(l, role).Bandwidth.BytesPerSecond(), classCost(r, role).Bandwidth.BytesPerSecond())
}

// score returns the score of a pair for a role, in 1/s: the inverse of the
// sum of its cost. Higher is better.
func score(role wireup.Role, l, r *wireup.Resource) float64 {
	c := costOf(role, l, r)
	return 1e12 / float64(max(c.Latency+c.Overhead+c.Transfer, 1))
}

// terms returns the names of the terms in the score of a role; sizes are multiples of 1 KiB.
func terms(role wireup.Role) string {
	if n := size(role); n > 0 {
		return fmt.Sprintf("latency + overhead + %d KiB", n>>10)
	}
	return "latency + overhead"
}
