package proto

import (
	"math"
	"math/bits"
)

// MaxRails is the maximum number of lanes that share a transfer. It equals selection.MaxRails, which a declaration in ucp
// checks.
const MaxRails = 4

// railAlign is the unit of the parts of a transfer, in bytes: each part but the last is a multiple of it. If the buffer
// begins at a page, no page and no packet of an adapter is split between two lanes.
const railAlign = 4 << 10

// Rails is a set of lanes that share large transfers, the lane with the highest bandwidth first. It has their bandwidths
// in bytes per second.
type Rails struct {
	weights [MaxRails]uint64
	n       int
	total   uint64
}

// Add adds a lane. Its bandwidth must not exceed that of the lanes added before. Add ignores the lane if there are MaxRails
// lanes already.
func (s *Rails) Add(bandwidth uint64) {
	if s.n < MaxRails {
		s.weights[s.n] = max(bandwidth, 1)
		s.total += s.weights[s.n]
		s.n++
	}
}

// Len returns the number of lanes.
func (s *Rails) Len() int { return s.n }

// Weight returns the bandwidth of lane i in bytes per second.
func (s *Rails) Weight(i int) uint64 { return s.weights[i] }

// Share returns the part of lane i in percent, rounded down.
func (s *Rails) Share(i int) int { return int(scale(100, s.weights[i], s.total)) }

// Limit removes the last lanes until at most n remain, and at least one.
func (s *Rails) Limit(n int) {
	for s.n > max(n, 1) {
		s.n--
		s.total -= s.weights[s.n]
		s.weights[s.n] = 0
	}
}

// For returns the lanes that share a transfer of n bytes: the largest number of lanes of which each transfers at least
// chunk bytes. If the result has one lane, the transfer is not split.
func (s Rails) For(n, chunk int) Rails {
	for s.n > 1 && s.part(s.n-1, n) < chunk {
		s.Limit(s.n - 1)
	}
	return s
}

// From returns the minimum length of a transfer that two lanes share, in bytes; 0 if there is only one lane.
func (s *Rails) From(chunk int) int {
	if s.n < 2 {
		return 0
	}
	two := *s
	two.Limit(2)
	chunk = (min(chunk, math.MaxInt-railAlign) + railAlign - 1) &^ (railAlign - 1)
	n := int(min(scale(uint64(chunk), two.total, two.weights[1]), math.MaxInt-1))
	if two.part(1, n) < chunk {
		n++
	}
	return n
}

// Bounds returns the end of the part of each lane in a transfer of n bytes, as an offset.
func (s *Rails) Bounds(n int) (ends [MaxRails]int) {
	end := 0
	for i := range s.n {
		end = min(end+s.part(i, n), n)
		ends[i] = end
	}
	ends[s.n-1] = n
	return ends
}

// part returns the number of bytes that lane i transfers of n, rounded down to railAlign. The last lane also transfers the
// remainder.
func (s *Rails) part(i, n int) int {
	return int(scale(uint64(n), s.weights[i], s.total)) &^ (railAlign - 1)
}

// scale returns n * part / total, rounded down; math.MaxUint64 if the result overflows.
func scale(n, part, total uint64) uint64 {
	hi, lo := bits.Mul64(n, part)
	if hi >= total {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, total)
	return q
}

// Shared returns m, which uses the first lane, with the bandwidth of all lanes together.
func (s *Rails) Shared(m Move) Move {
	m.Cost.Bandwidth = scale(m.Cost.Bandwidth, s.total, s.weights[0])
	m.Cost.SharedBandwidth = scale(m.Cost.SharedBandwidth, s.total, s.weights[0])
	return m
}
