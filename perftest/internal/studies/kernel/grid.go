package kernel

import "slices"

// Factors returns the prime factors of n, the largest first.
func Factors(n int) (list []int) {
	for f := 2; n > 1; f++ {
		for ; n%f == 0; n /= f {
			list = append(list, f)
		}
	}
	slices.Reverse(list)
	return list
}

// Split divides a box between n ranks: it returns the number of parts of each edge. Each factor of n divides the
// longest edge at that time, the last of equal ones, among those that the factor may divide.
func Split(edges []int, n int, may func(edge, parts int) bool) (parts []int, ok bool) {
	parts = make([]int, len(edges))
	for d := range parts {
		parts[d] = 1
	}
	for _, f := range Factors(n) {
		best := -1
		for d := range edges {
			longer := best < 0 || edges[d]*parts[best] >= edges[best]*parts[d]
			if longer && may(edges[d], parts[d]*f) {
				best = d
			}
		}
		if best < 0 {
			return nil, false
		}
		parts[best] *= f
	}
	return parts, true
}

// Grow returns the edges of a box for n ranks, each with a box of the given size: as nearly equal as possible.
func Grow(edges []int, n int) []int {
	edges = slices.Clone(edges)
	for _, f := range Factors(n) {
		least := len(edges) - 1
		for d := range edges {
			if edges[d] < edges[least] {
				least = d
			}
		}
		edges[least] *= f
	}
	return edges
}

// Place returns the place of a rank in a grid of parts; the last coordinate changes fastest.
func Place(rank int, parts []int) []int {
	at := make([]int, len(parts))
	for d := len(parts) - 1; d >= 0; d-- {
		at[d] = rank % parts[d]
		rank /= parts[d]
	}
	return at
}

// Neighbor returns the rank that is by steps further along an edge; the grid is periodic.
func Neighbor(at, parts []int, edge, by int) (rank int) {
	for d, n := range parts {
		c := at[d]
		if d == edge {
			c = (c + by + n) % n
		}
		rank = rank*n + c
	}
	return rank
}

// Hash mixes numbers into a pseudorandom one (splitmix64, Steele, Lea and Flood, OOPSLA 2014).
func Hash(v ...uint64) (h uint64) {
	for _, x := range v {
		h += x + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// Uniform returns a number in [-1, 1) from a hash.
func Uniform(hash uint64) float64 { return float64(int64(hash)>>11) / (1 << 52) }
