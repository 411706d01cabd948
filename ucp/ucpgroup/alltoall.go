package ucpgroup

import "context"

// Limits between algorithms of Alltoall, in bytes from one rank to another; see reduceShort for
// the source.
const (
	// alltoallShort is the largest size for which the number of messages matters most.
	alltoallShort = 256
	// alltoallMedium is the largest size for which all messages are in flight at the same time.
	alltoallMedium = 32 << 10
	// alltoallFew is the smallest number of ranks for which forwarding data is faster.
	alltoallFew = 8
	// alltoallAtOnce limits the messages in flight in each direction.
	alltoallAtOnce = 32
)

// Alltoall sends part q of send to each rank q, and stores the part from rank q as part q of
// recv. Both have Size parts of the same length on all ranks, and must not overlap. See also "Collective operations" in the package documentation.
func (c *Comm) Alltoall(ctx context.Context, send, recv []byte) error {
	s, err := c.alltoall(send, recv)
	return c.run(ctx, s, err)
}

// Ialltoall begins Alltoall. send and recv belong to the group until the request is complete.
func (c *Comm) Ialltoall(send, recv []byte) (*Request, error) {
	s, err := c.alltoall(send, recv)
	return c.start(s, err)
}

func (c *Comm) alltoall(send, recv []byte) (*schedule, error) {
	const name = "alltoall"
	if err := c.usable(name); err != nil {
		return nil, err
	}
	n := c.Size()
	if len(send) != len(recv) || len(send)%n != 0 {
		return nil, invalid(name, "data that is no whole part for each rank, of length", len(send))
	}
	s, size := c.begin(name), len(send)/n
	out, in := blocks{send, n}, blocks{recv, n}
	switch {
	case size <= alltoallShort && n >= alltoallFew:
		s.bruckAlltoall(out, in)
	case size <= alltoallMedium:
		s.copy(in.at(c.rank), out.at(c.rank))
		s.spreadAlltoall(out, in)
	default:
		s.copy(in.at(c.rank), out.at(c.rank))
		s.pairwiseAlltoall(out, in)
	}
	return s, nil
}

// spreadAlltoall sends all messages at the same time. Each rank begins with its neighbor.
func (s *schedule) spreadAlltoall(out, in blocks) {
	n, me := s.c.Size(), s.c.rank
	for i := 1; i < n; i += alltoallAtOnce {
		for j := i; j < min(i+alltoallAtOnce, n); j++ {
			s.recv((me-j+n)%n, in.at((me-j+n)%n))
		}
		for j := i; j < min(i+alltoallAtOnce, n); j++ {
			s.send((me+j)%n, out.at((me+j)%n))
		}
		s.wait()
	}
}

// pairwiseAlltoall exchanges with one rank at a time: in each round every rank sends to one and
// receives from one.
func (s *schedule) pairwiseAlltoall(out, in blocks) {
	n, me := s.c.Size(), s.c.rank
	for i := 1; i < n; i++ {
		to, from := (me+i)%n, (me-i+n)%n
		if n&(n-1) == 0 {
			to, from = me^i, me^i
		}
		s.recv(from, in.at(from))
		s.send(to, out.at(to))
		s.wait()
	}
}

// bruckAlltoall forwards data by way of other ranks (Bruck and others 1997). There is a step for
// each bit of a distance between ranks. In the step of bit k a rank sends one message to the rank
// 2^k after it, with all the data whose distance has that bit set.
func (s *schedule) bruckAlltoall(out, in blocks) {
	n, me := s.c.Size(), s.c.rank
	size := len(out.b) / n
	half := (n + 1) / 2 * size // no bit is set in more than half of the numbers
	all := s.scratch(n*size + 2*half)
	turned, packed, came := blocks{all[: n*size : n*size], n}, all[n*size:][:half], all[n*size+half:]
	s.copy(turned.span(0, n-me), out.span(me, n))
	s.copy(turned.span(n-me, n), out.span(0, me))
	for d := 1; d < n; d *= 2 {
		count := 0
		for i := d; i < n; i++ {
			if i&d != 0 {
				s.copy(packed[count*size:][:size], turned.at(i))
				count++
			}
		}
		s.recv((me-d+n)%n, came[:count*size])
		s.send((me+d)%n, packed[:count*size])
		s.wait()
		count = 0
		for i := d; i < n; i++ {
			if i&d != 0 {
				s.copy(turned.at(i), came[count*size:][:size])
				count++
			}
		}
	}
	for i := range n {
		s.copy(in.at((me-i+n)%n), turned.at(i))
	}
}
