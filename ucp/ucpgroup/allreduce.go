package ucpgroup

import (
	"context"
	"math/bits"
)

// Limits between algorithms of reductions, in bytes of a rank's numbers. They are MPICH's, after
// Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH"
// (2005); that of the ring after Rabenseifner and Träff, "More Efficient Reduction Algorithms for
// Non-Power-of-Two Number of Processors" (2004).
const (
	// reduceShort is the largest size for which latency matters more than bandwidth.
	reduceShort = 2 << 10
	// reduceRing is the smallest size for which a ring is faster if the number of ranks is not a power of
	// two, because it sends nothing twice.
	reduceRing = 512 << 10
)

// Allreduce folds the numbers of all ranks and stores the result in recv of each rank. send and recv
// have the same length on all ranks and must not overlap. If send is nil, recv contains this rank's
// numbers. See also "Collective operations" in the package documentation.
func Allreduce[T Number](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	s, err := allreduce(c, send, recv, op)
	return c.run(ctx, s, err)
}

// Iallreduce begins Allreduce. send and recv belong to the group until the request is complete.
func Iallreduce[T Number](c *Comm, send, recv []T, op Op[T]) (*Request, error) {
	s, err := allreduce(c, send, recv, op)
	return c.start(s, err)
}

func allreduce[T Number](c *Comm, send, recv []T, op Op[T]) (*schedule, error) {
	const name = "allreduce"
	if err := c.usable(name); err != nil {
		return nil, err
	}
	if send != nil && len(send) != len(recv) {
		return nil, invalid(name, "a result of other length than", len(send))
	}
	s := c.begin(name)
	s.fold = fold(op)
	if send != nil {
		s.copy(Bytes(recv), Bytes(send))
	}
	s.allreduce(Bytes(recv), sizeOf[T]())
	return s, nil
}

// allreduce adds the steps of the algorithm for numbers of some size in b.
func (s *schedule) allreduce(b []byte, size int) {
	n := s.c.Size()
	if n == 1 {
		return
	}
	v := vector{b: b, tmp: s.scratch(len(b)), size: size}
	switch {
	case len(b) <= reduceShort || v.len() < n:
		s.recursiveDoubling(v)
	case len(b) >= reduceRing && n&(n-1) != 0:
		s.ringAllreduce(v)
	default:
		s.rabenseifner(v)
	}
}

// vector is numbers in memory, and scratch memory as long.
type vector struct {
	b, tmp []byte
	size   int // of a number
}

func (v vector) len() int { return len(v.b) / v.size }

// block is part i of n nearly equal ones, and the scratch memory at the same place.
func (v vector) block(i, n int) (b, tmp []byte) { return v.blocks(i, i+1, n) }

// blocks are the parts from i to just before j, of n.
func (v vector) blocks(i, j, n int) (b, tmp []byte) {
	from, to := i*v.len()/n*v.size, j*v.len()/n*v.size
	return v.b[from:to], v.tmp[from:to]
}

// core is the largest power of two of ranks that is at most n. The remaining ranks form pairs with as
// many of the others: the even rank sends its numbers to the next one, and receives
// the result.
type core struct {
	size  int // a power of two
	extra int // ranks beyond
	rank  int // among the core; -1 outside
}

func coreOf(rank, n int) core {
	size := 1 << (bits.Len(uint(n)) - 1)
	k := core{size: size, extra: n - size}
	switch {
	case rank >= 2*k.extra:
		k.rank = rank - k.extra
	case rank%2 == 1:
		k.rank = rank / 2
	default:
		k.rank = -1
	}
	return k
}

// real is the rank in the communicator of one of the core.
func (k core) real(rank int) int {
	if rank < k.extra {
		return 2*rank + 1
	}
	return rank + k.extra
}

// foldIn folds the numbers of all ranks into the core. It reports whether this rank is in the core.
func (s *schedule) foldIn(v vector, k core) bool {
	me := s.c.rank
	if k.rank < 0 {
		s.send(me+1, v.b)
		s.wait()
		return false
	}
	if me < 2*k.extra {
		s.recv(me-1, v.tmp)
		s.wait()
		s.reduce(v.b, v.tmp)
	}
	return true
}

// sendToExtra sends the result to the ranks outside of the core. It is the last part of a schedule.
func (s *schedule) sendToExtra(v vector, k core) {
	switch me := s.c.rank; {
	case k.rank < 0:
		s.recv(me+1, v.b)
	case me < 2*k.extra:
		s.send(me-1, v.b)
	}
}

// recursiveDoubling exchanges and folds all numbers between ranks at distance 1, 2, 4 ...: the
// smallest number of rounds.
func (s *schedule) recursiveDoubling(v vector) {
	k := coreOf(s.c.rank, s.c.Size())
	if s.foldIn(v, k) {
		for d := 1; d < k.size; d *= 2 {
			peer := k.real(k.rank ^ d)
			s.recv(peer, v.tmp)
			s.send(peer, v.b)
			s.wait()
			s.reduce(v.b, v.tmp)
		}
	}
	s.sendToExtra(v, k)
}

// rabenseifner folds by recursive halving, after which each rank of the core has the result of one
// block, and collects the blocks by recursive doubling: each number is sent about twice, for any
// number of ranks.
func (s *schedule) rabenseifner(v vector) {
	k := coreOf(s.c.rank, s.c.Size())
	if s.foldIn(v, k) {
		s.halve(v, k)
		for d := 1; d < k.size; d *= 2 {
			peer := k.rank ^ d
			mine, _ := v.blocks(k.rank&^(d-1), k.rank&^(d-1)+d, k.size)
			other, _ := v.blocks(peer&^(d-1), peer&^(d-1)+d, k.size)
			s.recv(k.real(peer), other)
			s.send(k.real(peer), mine)
			s.wait()
		}
	}
	s.sendToExtra(v, k)
}

// halve is a reduce-scatter among the core: it leaves block rank of core.size with each.
func (s *schedule) halve(v vector, k core) {
	for d := k.size / 2; d >= 1; d /= 2 {
		peer := k.rank ^ d
		keep, tmp := v.blocks(k.rank&^(d-1), k.rank&^(d-1)+d, k.size)
		give, _ := v.blocks(peer&^(d-1), peer&^(d-1)+d, k.size)
		s.recv(k.real(peer), tmp)
		s.send(k.real(peer), give)
		s.wait()
		s.reduce(keep, tmp)
	}
}

// ringAllreduce passes blocks around, first folding, then collecting: any number of ranks sends
// each number just twice, in 2(n-1) rounds.
func (s *schedule) ringAllreduce(v vector) {
	n, me := s.c.Size(), s.c.rank
	next, before := (me+1)%n, (me-1+n)%n
	for i := range n - 1 {
		out, _ := v.block((me-i+n)%n, n)
		in, tmp := v.block((me-i-1+n)%n, n)
		s.recv(before, tmp)
		s.send(next, out)
		s.wait()
		s.reduce(in, tmp)
	}
	for i := range n - 1 {
		out, _ := v.block((me+1-i+n)%n, n)
		in, _ := v.block((me-i+n)%n, n)
		s.recv(before, in)
		s.send(next, out)
		s.wait()
	}
}
