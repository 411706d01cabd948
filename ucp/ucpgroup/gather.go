package ucpgroup

import "context"

// treeMost is the maximum length of the part of a rank, in bytes, for which Gather and Scatter use a tree. Longer parts are
// sent directly, so that no rank stores the parts of others. It is the limit of Open MPI's module tuned for large messages.
const treeMost = 92160

// Gather collects send of all ranks in recv of root, in the order of ranks. send has the same length on all ranks. recv of
// root is Size times as long; other ranks do not use recv. See also "Collective operations" in the package documentation.
func (c *Comm) Gather(ctx context.Context, root int, send, recv []byte) error {
	s, err := c.gather(root, send, recv)
	return c.run(ctx, s, err)
}

// Igather begins Gather. send and recv belong to the group until the request is complete.
func (c *Comm) Igather(root int, send, recv []byte) (*Request, error) {
	s, err := c.gather(root, send, recv)
	return c.start(s, err)
}

func (c *Comm) gather(root int, send, recv []byte) (*schedule, error) {
	const name = "gather"
	if err := c.checkRoot(name, root); err != nil {
		return nil, err
	}
	if c.rank == root && len(recv) != c.Size()*len(send) {
		return nil, invalid(name, "a result whose length is not that of all ranks,", len(recv))
	}
	s := c.begin(name)
	if len(send) > treeMost {
		s.directGather(root, send, recv)
	} else {
		s.binomialGather(root, send, recv)
	}
	return s, nil
}

// directGather adds the steps in which each rank sends its part to the root.
func (s *schedule) directGather(root int, send, recv []byte) {
	c := s.c
	if c.rank != root {
		s.send(root, send)
		return
	}
	all := blocks{recv, c.Size()}
	for q := range c.Size() {
		if q != root {
			s.recv(q, all.at(q))
		}
	}
	s.copy(all.at(root), send)
}

// binomialGather forwards parts along a binomial tree. Ranks are counted from the root on.
func (s *schedule) binomialGather(root int, send, recv []byte) {
	n, me, size := s.c.Size(), s.from(root), len(send)
	width := subtree(me, n)
	have := min(width, n-me) // number of parts that this rank collects
	parts := send
	switch {
	case root == 0 && me == 0:
		parts = recv
	case have > 1:
		parts = s.scratch(have * size)
	}
	if have > 1 || me == 0 {
		s.copy(parts[:size], send)
	}
	for d := 1; d < have; d *= 2 {
		s.recv((root+me+d)%n, parts[d*size:min(2*d, have)*size])
	}
	s.wait()
	switch {
	case me != 0:
		s.send((root+me-width)%n, parts)
	case root != 0:
		s.copy(recv[root*size:], parts[:(n-root)*size])
		s.copy(recv[:root*size], parts[(n-root)*size:])
	}
}
