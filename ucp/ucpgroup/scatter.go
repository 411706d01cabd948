package ucpgroup

import "context"

// Scatter sends part q of the root's send to recv of each rank q. recv has the same length on all
// ranks. send is Size times as long at the root; other ranks do not use it. See also "Collective operations" in the package documentation.
func (c *Comm) Scatter(ctx context.Context, root int, send, recv []byte) error {
	s, err := c.scatter(root, send, recv)
	return c.run(ctx, s, err)
}

// Iscatter begins Scatter. send and recv belong to the group until the request is complete.
func (c *Comm) Iscatter(root int, send, recv []byte) (*Request, error) {
	s, err := c.scatter(root, send, recv)
	return c.start(s, err)
}

func (c *Comm) scatter(root int, send, recv []byte) (*schedule, error) {
	const name = "scatter"
	if err := c.checkRoot(name, root); err != nil {
		return nil, err
	}
	if c.rank == root && len(send) != c.Size()*len(recv) {
		return nil, invalid(name, "data whose length is not that of all ranks,", len(send))
	}
	s := c.begin(name)
	if len(recv) > treeMost {
		s.directScatter(root, send, recv)
	} else {
		s.binomialScatter(root, send, recv)
	}
	return s, nil
}

// directScatter sends from the root to each rank.
func (s *schedule) directScatter(root int, send, recv []byte) {
	c := s.c
	if c.rank != root {
		s.recv(root, recv)
		return
	}
	all := blocks{send, c.Size()}
	for q := range c.Size() {
		if q != root {
			s.send(q, all.at(q))
		}
	}
	s.copy(recv, all.at(root))
}

// binomialScatter forwards parts along a binomial tree. Ranks are counted from the root on.
func (s *schedule) binomialScatter(root int, send, recv []byte) {
	n, me, size := s.c.Size(), s.from(root), len(recv)
	width := subtree(me, n)
	have := min(width, n-me) // number of parts that this rank receives
	parts := recv
	switch {
	case root == 0 && me == 0:
		parts = send
	case have > 1:
		parts = s.scratch(have * size)
	}
	switch {
	case me != 0:
		s.recv((root+me-width)%n, parts)
		s.wait()
	case root != 0:
		s.copy(parts[:(n-root)*size], send[root*size:])
		s.copy(parts[(n-root)*size:], send[:root*size])
	}
	for d := width / 2; d > 0; d /= 2 {
		if d < have {
			s.send((root+me+d)%n, parts[d*size:min(2*d, have)*size])
		}
	}
	if have > 1 || me == 0 {
		s.copy(recv, parts[:size])
	}
}
