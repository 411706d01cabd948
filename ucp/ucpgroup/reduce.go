package ucpgroup

import "context"

// Reduce folds the numbers of all ranks and stores the result in recv of root; other ranks do not use
// recv. send, and recv of root, have the same length on all ranks and must not overlap.
// If send is nil at the root, recv contains its numbers. See also "Collective operations" in the
// package documentation.
func Reduce[T Number](ctx context.Context, c *Comm, root int, send, recv []T, op Op[T]) error {
	s, err := reduce(c, root, send, recv, op)
	return c.run(ctx, s, err)
}

// Ireduce begins Reduce. send and recv belong to the group until the request is complete.
func Ireduce[T Number](c *Comm, root int, send, recv []T, op Op[T]) (*Request, error) {
	s, err := reduce(c, root, send, recv, op)
	return c.start(s, err)
}

func reduce[T Number](c *Comm, root int, send, recv []T, op Op[T]) (*schedule, error) {
	const name = "reduce"
	if err := c.checkRoot(name, root); err != nil {
		return nil, err
	}
	if c.rank == root && send != nil && len(send) != len(recv) {
		return nil, invalid(name, "a result of other length than", len(send))
	}
	s := c.begin(name)
	s.fold = fold(op)
	if c.rank == root {
		s.reduceTo(root, Bytes(send), Bytes(recv), sizeOf[T]())
	} else {
		s.reduceTo(root, Bytes(send), nil, sizeOf[T]())
	}
	return s, nil
}

// reduceTo adds the steps of the algorithm for numbers of some size in send, or in recv if send is
// nil. recv is nil except at the root.
func (s *schedule) reduceTo(root int, send, recv []byte, size int) {
	n := s.c.Size()
	length := max(len(send), len(recv))
	all := s.scratch(2 * roundUp(length))
	v := vector{b: recv, tmp: all[:length], size: size}
	if s.c.rank != root {
		v.b = all[roundUp(length):][:length]
	}
	if send != nil {
		s.copy(v.b, send)
	}
	switch {
	case n == 1:
	case length <= reduceShort || v.len() < n:
		s.binomialReduce(root, v)
	default:
		s.halvingReduce(root, v)
	}
}

// roundUp returns n rounded up to the alignment of every Number.
func roundUp(n int) int { return (n + 7) &^ 7 }

// binomialReduce folds along a binomial tree. Ranks are counted from the root on.
func (s *schedule) binomialReduce(root int, v vector) {
	n, me := s.c.Size(), s.from(root)
	width := subtree(me, n)
	for d := 1; d < width && me+d < n; d *= 2 {
		s.recv((root+me+d)%n, v.tmp)
		s.wait()
		s.reduce(v.b, v.tmp)
	}
	if me != 0 {
		s.send((root+me-width)%n, v.b)
	}
}

// halvingReduce folds by recursive halving, after which each rank of the core has the result of
// one block, and passes the blocks to the root along a tree (Rabenseifner).
func (s *schedule) halvingReduce(root int, v vector) {
	k := coreOf(s.c.rank, s.c.Size())
	at := coreOf(root, s.c.Size()).rank // number in the core of the rank that gets all blocks
	if at < 0 {
		at = root / 2 // the root is outside of the core: the rank after the root
	}
	if s.foldIn(v, k) {
		s.halve(v, k)
		s.passBlocks(at, v, k)
	}
	switch me := s.c.rank; {
	case k.commRank(at) == root:
	case me == root:
		s.recv(k.commRank(at), v.b)
	case k.rank == at:
		s.send(root, v.b)
	}
}

// passBlocks passes the blocks of all ranks of the core to its rank at.
func (s *schedule) passBlocks(at int, v vector, k core) {
	for d := 1; d < k.size; d *= 2 {
		peer := k.rank ^ d
		if (k.rank^at)&d != 0 {
			mine, _ := v.blocks(k.rank&^(d-1), k.rank&^(d-1)+d, k.size)
			s.send(k.commRank(peer), mine)
			s.wait()
			return
		}
		other, _ := v.blocks(peer&^(d-1), peer&^(d-1)+d, k.size)
		s.recv(k.commRank(peer), other)
		s.wait()
	}
}
