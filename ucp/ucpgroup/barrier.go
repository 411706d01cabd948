package ucpgroup

import "context"

// Barrier returns when every rank of the communicator has called it. For errors, and for the effect if ctx is done first,
// see "Collective operations" in the package documentation.
func (c *Comm) Barrier(ctx context.Context) error {
	s, err := c.barrier()
	return c.run(ctx, s, err)
}

// Ibarrier begins a barrier. Its request is complete when every rank has begun the barrier.
func (c *Comm) Ibarrier() (*Request, error) {
	s, err := c.barrier()
	return c.start(s, err)
}

// barrier is a dissemination barrier: in round k each rank sends a message to the rank 2^k after it, so that after log2(n)
// rounds each rank depends on all others, directly or not (Hensgen, Finkel and Manber 1988).
func (c *Comm) barrier() (*schedule, error) {
	if err := c.usable("barrier"); err != nil {
		return nil, err
	}
	s, n := c.begin("barrier"), c.Size()
	for d := 1; d < n; d *= 2 {
		s.recv((c.rank-d+n)%n, nil)
		s.send((c.rank+d)%n, nil)
		s.wait()
	}
	return s, nil
}
