package ucpgroup

import "context"

// Scatter gives each rank its part of what root has in send: that of rank q is the q-th, in recv,
// which is equally long everywhere. send is Size times as long at the root, and not used
// elsewhere. See also "Collective operations" in the package documentation.
func (c *Comm) Scatter(ctx context.Context, root int, send, recv []byte) error {
	s, err := c.scatter(root, send, recv)
	return c.run(ctx, s, err)
}

// Iscatter begins Scatter. send and recv are the group's until the request has ended.
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

// directScatter has the root send to each rank.
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

// binomialScatter passes parts along a binomial tree. Ranks count from the root on.
func (s *schedule) binomialScatter(root int, send, recv []byte) {
	n, me, size := s.c.Size(), s.from(root), len(recv)
	width := subtree(me, n)
	have := min(width, n-me) // parts that come this way
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
