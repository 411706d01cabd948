package proto

import (
	"math"
	"math/bits"
)

// MaxRails bounds how many lanes share a transfer: that of selection, which ucp holds it to.
const MaxRails = 4

// railAlign is what parts of a transfer are a multiple of, in bytes, but for the last: if the
// buffer begins at a page, no page, and no packet of an adapter, is split between two lanes.
const railAlign = 4 << 10

// Rails are lanes that share long transfers, best first: by their bandwidths, in bytes per
// second.
type Rails struct {
	weights [MaxRails]uint64
	n       int
	total   uint64
}

// Add adds a lane, which is not better than those before. One more than MaxRails is left out.
func (s *Rails) Add(bandwidth uint64) {
	if s.n < MaxRails {
		s.weights[s.n] = max(bandwidth, 1)
		s.total += s.weights[s.n]
		s.n++
	}
}

// Len is how many lanes there are.
func (s *Rails) Len() int { return s.n }

// Weight is the bandwidth of lane i.
func (s *Rails) Weight(i int) uint64 { return s.weights[i] }

// Share is the part of lane i in percent, rounded down.
func (s *Rails) Share(i int) int { return int(scale(100, s.weights[i], s.total)) }

// Limit leaves at most n lanes.
func (s *Rails) Limit(n int) {
	for s.n > max(n, 1) {
		s.n--
		s.total -= s.weights[s.n]
		s.weights[s.n] = 0
	}
}

// For are the lanes that share a transfer of n bytes: the best ones, so many that the part of
// each is at least chunk. One means that it is not shared.
func (s Rails) For(n, chunk int) Rails {
	for s.n > 1 && s.part(s.n-1, n) < chunk {
		s.Limit(s.n - 1)
	}
	return s
}

// From is the least length that is shared; 0 if none is.
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

// Bounds are where the parts of a transfer of n bytes end, by lane.
func (s *Rails) Bounds(n int) (ends [MaxRails]int) {
	end := 0
	for i := range s.n {
		end = min(end+s.part(i, n), n)
		ends[i] = end
	}
	ends[s.n-1] = n
	return ends
}

// part is what lane i moves of n bytes; the last one also moves what rounding leaves.
func (s *Rails) part(i, n int) int {
	return int(scale(uint64(n), s.weights[i], s.total)) &^ (railAlign - 1)
}

// scale is n * part / total, rounded down, and as much as there is if that is too much.
func scale(n, part, total uint64) uint64 {
	hi, lo := bits.Mul64(n, part)
	if hi >= total {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, total)
	return q
}

// Shared is a way over several lanes: as m, which is over the first, with the bandwidth of all.
func (s *Rails) Shared(m Move) Move {
	m.Cost.Bandwidth = scale(m.Cost.Bandwidth, s.total, s.weights[0])
	m.Cost.SharedBandwidth = scale(m.Cost.SharedBandwidth, s.total, s.weights[0])
	return m
}
