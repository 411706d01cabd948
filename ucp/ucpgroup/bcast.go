package ucpgroup

import "context"

// Limits between algorithms of Bcast, in bytes; see reduceShort for the source.
const (
	// bcastShort is the largest size for which latency matters more than bandwidth.
	bcastShort = 12 << 10
	// bcastLong is the smallest size for which neighbors are the best peers, also if the number of
	// ranks is a power of two.
	bcastLong = 512 << 10
	// bcastFew is the smallest number of ranks for which splitting the data is faster.
	bcastFew = 8
)

// Bcast copies buf of root to buf of all ranks, which has the same length on all ranks. See also
// "Collective operations" in the package documentation.
func (c *Comm) Bcast(ctx context.Context, root int, buf []byte) error {
	s, err := c.bcast(root, buf)
	return c.run(ctx, s, err)
}

// Ibcast begins Bcast. buf belongs to the group until the request is complete.
func (c *Comm) Ibcast(root int, buf []byte) (*Request, error) {
	s, err := c.bcast(root, buf)
	return c.start(s, err)
}

func (c *Comm) bcast(root int, buf []byte) (*schedule, error) {
	const name = "bcast"
	if err := c.checkRoot(name, root); err != nil {
		return nil, err
	}
	s, n := c.begin(name), c.Size()
	b := blocks{buf, n}
	switch {
	case len(buf) <= bcastShort || n < bcastFew:
		s.binomialBcast(root, buf)
	case len(buf) < bcastLong && n&(n-1) == 0:
		s.scatterParts(root, b)
		s.doublingAllgather(b, root)
	default:
		s.scatterParts(root, b)
		s.ringAllgather(b, root)
	}
	return s, nil
}

// checkRoot returns the error of a collective operation with an invalid root; nil if it is valid.
func (c *Comm) checkRoot(op string, root int) error {
	if uint(root) >= uint(c.Size()) {
		return invalid(op, "root", root)
	}
	return c.usable(op)
}

// subtree returns the maximum size of a subtree of a binomial tree. Its top is the rank me after the root. The size is the
// largest power of two that divides me; for the root (me = 0) it is the smallest power of two that is at least n.
func subtree(me, n int) int {
	d := 1
	for d < n && me&d == 0 {
		d *= 2
	}
	return d
}

// binomialBcast doubles the number of ranks with the data in each round.
func (s *schedule) binomialBcast(root int, buf []byte) {
	n, me := s.c.Size(), s.from(root)
	width := subtree(me, n)
	if me != 0 {
		s.recv((root+me-width)%n, buf)
		s.wait()
	}
	for d := width / 2; d > 0; d /= 2 {
		if me+d < n {
			s.send((root+me+d)%n, buf)
		}
	}
}

// scatterParts sends each rank its part of the root's data, along a binomial tree. Ranks
// are counted from the root on.
func (s *schedule) scatterParts(root int, b blocks) {
	n, me := s.c.Size(), s.from(root)
	width := subtree(me, n)
	if me != 0 {
		s.recv((root+me-width)%n, b.span(me, min(me+width, n)))
		s.wait()
	}
	for d := width / 2; d > 0; d /= 2 {
		if me+d < n {
			s.send((root+me+d)%n, b.span(me+d, min(me+2*d, n)))
		}
	}
	s.wait()
}
