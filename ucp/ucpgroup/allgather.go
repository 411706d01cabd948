package ucpgroup

import "context"

// Limits between algorithms of Allgather, in bytes of all ranks together; see reduceShort for
// the source.
const (
	// gatherShort is the largest size for which the number of rounds matters most.
	gatherShort = 80 << 10
	// gatherLong is the smallest size for which neighbors are the best peers, also if the number of
	// ranks is a power of two.
	gatherLong = 512 << 10
)

// Allgather collects send of all ranks in recv of each rank, in the order of ranks. send has the same
// length on all ranks; recv is Size times as long. send may be this rank's part of recv.
// See also "Collective operations" in the package documentation.
func (c *Comm) Allgather(ctx context.Context, send, recv []byte) error {
	s, err := c.allgather(send, recv)
	return c.run(ctx, s, err)
}

// Iallgather begins Allgather. send and recv belong to the group until the request is complete.
func (c *Comm) Iallgather(send, recv []byte) (*Request, error) {
	s, err := c.allgather(send, recv)
	return c.start(s, err)
}

func (c *Comm) allgather(send, recv []byte) (*schedule, error) {
	const name = "allgather"
	n := c.Size()
	if err := c.usable(name); err != nil {
		return nil, err
	}
	if len(recv) != n*len(send) {
		return nil, invalid(name, "a result whose length is not that of all ranks,", len(recv))
	}
	s := c.begin(name)
	b := blocks{recv, n}
	switch {
	case len(recv) <= gatherShort && n&(n-1) != 0:
		s.bruckAllgather(b, send)
	case len(recv) < gatherLong && n&(n-1) == 0:
		s.copy(b.at(c.rank), send)
		s.doublingAllgather(b, 0)
	default:
		s.copy(b.at(c.rank), send)
		s.ringAllgather(b, 0)
	}
	return s, nil
}

// blocks is memory that is divided into n parts, one for each rank, whose lengths differ by at most one byte.
type blocks struct {
	b []byte
	n int
}

// at returns the part of a rank.
func (b blocks) at(rank int) []byte { return b.span(rank, rank+1) }

// span returns the contiguous parts of the ranks i to j-1.
func (b blocks) span(i, j int) []byte { return b.b[i*len(b.b)/b.n : j*len(b.b)/b.n] }

// doublingAllgather exchanges all collected parts between ranks at distance 1, 2, 4 ... The number of
// ranks, which are counted from first on, is a power of two.
func (s *schedule) doublingAllgather(b blocks, first int) {
	n := s.c.Size()
	me := s.from(first)
	for d := 1; d < n; d *= 2 {
		peer := me ^ d
		mine, other := me&^(d-1), peer&^(d-1)
		s.recv((first+peer)%n, b.span(other, other+d))
		s.send((first+peer)%n, b.span(mine, mine+d))
		s.wait()
	}
}

// from is this rank's number if ranks are counted from first on, modulo Size.
func (s *schedule) from(first int) int { return (s.c.rank - first + s.c.Size()) % s.c.Size() }

// ringAllgather passes parts to the next rank, one in a round. Ranks are counted from first on.
func (s *schedule) ringAllgather(b blocks, first int) {
	n, rank := s.c.Size(), s.c.rank
	me := s.from(first)
	for i := range n - 1 {
		s.recv((rank-1+n)%n, b.at((me-1-i+n)%n))
		s.send((rank+1)%n, b.at((me-i+n)%n))
		s.wait()
	}
}

// bruckAllgather doubles the parts of each rank in each round, for any number of ranks, and then
// rotates them so that they begin with rank 0 (Bruck and others, "Efficient Algorithms for All-to-All
// Communications in Multiport Message-Passing Systems", 1997).
func (s *schedule) bruckAllgather(b blocks, send []byte) {
	n, me := s.c.Size(), s.c.rank
	turned := blocks{s.scratch(len(b.b)), n}
	s.copy(turned.at(0), send)
	for d := 1; d < n; d *= 2 {
		count := min(d, n-d)
		s.recv((me+d)%n, turned.span(d, d+count))
		s.send((me-d+n)%n, turned.span(0, count))
		s.wait()
	}
	s.copy(b.span(me, n), turned.span(0, n-me))
	s.copy(b.span(0, me), turned.span(n-me, n))
}
