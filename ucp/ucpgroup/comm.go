package ucpgroup

import (
	"fmt"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// Comm is a communicator: an ordered set of ranks of a group. A message of a communicator matches only receives of the same
// communicator. The Comm belongs to the goroutine that owns the worker.
type Comm struct {
	g       *Group
	context uint16
	rank    int
	self    int     // rank in the world
	ranks   []int32 // rank in the world, by rank in the communicator
	inverse []int32 // rank in the communicator, by rank in the world; -1 for a rank that is not in the communicator
	number  uint64  // of the next collective operation
	spare   *schedule
	freed   bool
}

func newComm(g *Group, context uint16, rank int, ranks []int32) *Comm {
	inverse := make([]int32, len(g.peers))
	for q := range inverse {
		inverse[q] = -1
	}
	for r, q := range ranks {
		inverse[q] = int32(r)
	}
	return &Comm{g: g, context: context, rank: rank, self: g.rank, ranks: ranks, inverse: inverse}
}

// Rank returns the rank of this process in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks of the communicator.
func (c *Comm) Size() int { return len(c.ranks) }

// Group returns the group of the communicator.
func (c *Comm) Group() *Group { return c.g }

// WorldRank returns the rank in the world ([Group.World]) of a rank of the communicator. It panics if the rank does not exist.
func (c *Comm) WorldRank(rank int) int { return int(c.ranks[rank]) }

// rankOf returns the rank in the communicator of a rank in the world; -1 if it is not in the communicator.
func (c *Comm) rankOf(world int) int {
	if world >= len(c.inverse) {
		return -1
	}
	return int(c.inverse[world])
}

// EP returns the endpoint to a rank of the communicator, for operations of package ucp. The endpoint belongs to the group: the
// caller must not close it. EP panics if the rank does not exist.
func (c *Comm) EP(rank int) *ucp.EP { return c.g.peers[c.ranks[rank]].ep }

// peer is a rank of the communicator.
func (c *Comm) peer(rank int) *peer { return &c.g.peers[c.ranks[rank]] }

// dial returns the endpoint to a rank, and makes it for the first message.
func (c *Comm) dial(rank int) *ucp.EP {
	p := c.peer(rank)
	p.used = true
	return p.ep
}

// usable returns the error of operations of the communicator; nil if it is usable.
func (c *Comm) usable(op string) error {
	switch {
	case c.freed || c.g.closed:
		return opError(op, ucs.ErrClosed)
	case c.g.failed != nil:
		return c.g.failed
	}
	return nil
}

// failForeign ends the group because a rank that is not in the communicator has sent a message in it.
func (c *Comm) failForeign(op string, tag uint64) error {
	q := sourceOf(tag)
	err := fmt.Errorf("%w: rank %d of the world sends in a communicator that it is not in", ucs.ErrRemoteInvalid, q)
	c.g.fail(&RankError{q, err})
	c.g.step()
	return opError(op, &RankError{q, err})
}

// allGone is the error of a receive from any rank after all other ranks are gone.
func (c *Comm) allGone() error {
	var last error
	for rank, q := range c.ranks {
		if rank == c.rank {
			continue
		}
		if last = c.g.peers[q].gone; last == nil {
			return nil
		}
	}
	return last
}
