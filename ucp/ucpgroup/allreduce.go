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

// vector is an array of numbers, with scratch memory of the same length.
type vector struct {
	b, tmp []byte
	size   int // size of a number in bytes
}

func (v vector) len() int { return len(v.b) / v.size }

// block returns part i of n parts of nearly the same length, and the corresponding part of the scratch memory.
func (v vector) block(i, n int) (b, tmp []byte) { return v.blocks(i, i+1, n) }

// blocks returns parts i to j-1 of n, and the corresponding parts of the scratch memory.
func (v vector) blocks(i, j, n int) (b, tmp []byte) {
	from, to := i*v.len()/n*v.size, j*v.len()/n*v.size
	return v.b[from:to], v.tmp[from:to]
}

// core is a subset of n ranks whose size is the largest power of two up to n, for algorithms that need a power of two. The
// first 2*extra ranks form pairs: the even rank, which is outside of the core, sends its numbers to the odd one and later
// receives the result.
type core struct {
	size  int // a power of two
	extra int // number of ranks outside of the core
	rank  int // number of this rank within the core; -1 if it is outside
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

// commRank returns the rank in the communicator of a rank of the core.
func (k core) commRank(rank int) int {
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
			peer := k.commRank(k.rank ^ d)
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
			s.recv(k.commRank(peer), other)
			s.send(k.commRank(peer), mine)
			s.wait()
		}
	}
	s.sendToExtra(v, k)
}

// halve is a reduce-scatter within the core: afterwards each rank of the core has the result of the block with its number.
func (s *schedule) halve(v vector, k core) {
	for d := k.size / 2; d >= 1; d /= 2 {
		peer := k.rank ^ d
		keep, tmp := v.blocks(k.rank&^(d-1), k.rank&^(d-1)+d, k.size)
		give, _ := v.blocks(peer&^(d-1), peer&^(d-1)+d, k.size)
		s.recv(k.commRank(peer), tmp)
		s.send(k.commRank(peer), give)
		s.wait()
		s.reduce(keep, tmp)
	}
}

// ringAllreduce passes blocks around a ring of all ranks: in n-1 rounds it folds them, in n-1 further rounds it collects the
// results. Each number is sent twice, for any number of ranks.
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
