package ucpgroup

import (
	"fmt"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// Comm is a communicator: some ranks of a group in an order, with a matching of their own. Its
// messages match receives of the same communicator only. It belongs to the goroutine that owns
// the worker.
type Comm struct {
	g       *Group
	context uint16
	rank    int
	self    int     // rank in the world
	ranks   []int32 // in the world, by rank here
	inverse []int32 // rank here, by rank in the world; -1 if that is not here
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

// Rank is this process's rank in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size is how many ranks it has.
func (c *Comm) Size() int { return len(c.ranks) }

// Group is the group that it is of.
func (c *Comm) Group() *Group { return c.g }

// WorldRank is the rank in the world of a rank of the communicator. It panics if there is
// none.
func (c *Comm) WorldRank(rank int) int { return int(c.ranks[rank]) }

// rankOf is the rank in the communicator of a rank in the world; -1 if that is not in it.
func (c *Comm) rankOf(world int) int {
	if world >= len(c.inverse) {
		return -1
	}
	return int(c.inverse[world])
}

// EP is the endpoint to a rank of the communicator, for operations of package ucp. It stays
// the group's: do not close it. It panics if there is no such rank.
func (c *Comm) EP(rank int) *ucp.EP { return c.g.peers[c.ranks[rank]].ep }

// peer is a rank of the communicator.
func (c *Comm) peer(rank int) *peer { return &c.g.peers[c.ranks[rank]] }

// dial is the endpoint to a rank to which a message goes.
func (c *Comm) dial(rank int) *ucp.EP {
	p := c.peer(rank)
	p.used = true
	return p.ep
}

// usable is why the communicator takes no operation; nil if it does.
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

// allGone is why a receive from any rank cannot end well: all other ranks are gone.
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
