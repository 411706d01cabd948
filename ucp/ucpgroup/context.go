package ucpgroup

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/gucx/gucx/ucs"
)

// worldContext is the context of the world.
const worldContext = 0

// contextSet is a bit set of the contexts that a rank uses.
type contextSet [MaxComms / 64]uint64

func (x *contextSet) take(context uint16) { x[context/64] |= 1 << (context % 64) }

func (x *contextSet) free(context uint16) { x[context/64] &^= 1 << (context % 64) }

// lowestFree is the lowest context that is not in the set.
func (x *contextSet) lowestFree() (uint16, bool) {
	for i, word := range x {
		if word != ^uint64(0) {
			return uint16(i*64 + bits.TrailingZeros64(^word)), true
		}
	}
	return 0, false
}

// agree allocates the lowest context that no rank of the communicator uses.
func (c *Comm) agree(ctx context.Context) (uint16, error) {
	used := c.g.contexts
	if err := Allreduce(ctx, c, nil, used[:], Or[uint64]); err != nil {
		return 0, err
	}
	context, ok := used.lowestFree()
	if !ok {
		return 0, fmt.Errorf("all %d contexts are in use: %w", MaxComms, ucs.ErrNoMemory)
	}
	c.g.contexts.take(context)
	return context, nil
}

// Dup makes a communicator of the same ranks whose messages do not match those of this one,
// for example for a library. Every rank must call it. Errors: ErrNoMemory if there are
// MaxComms; see "Collective operations" in the package documentation.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	context, err := c.agree(ctx)
	if err != nil {
		return nil, opError("dup", err)
	}
	return newComm(c.g, context, c.rank, c.ranks), nil
}

// NoColor is the color of a rank that is in none of the communicators that Split makes.
const NoColor = -1

// Split makes a communicator of the ranks with the same color, which must not be negative, in
// the order of their keys, and of their ranks if keys are equal. Every rank must call it. It
// returns nil for [NoColor]. Errors are those of Dup.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if color < NoColor {
		return nil, c.refuse(invalid("split", "color", color))
	}
	all, err := c.colors(ctx, color, key)
	if err != nil {
		return nil, opError("split", err)
	}
	context, err := c.agree(ctx)
	if err != nil {
		return nil, opError("split", err)
	}
	if color == NoColor {
		c.g.contexts.free(context)
		return nil, nil
	}
	mine := slices.DeleteFunc(all, func(x splitter) bool { return x.color != int64(color) })
	slices.SortStableFunc(mine, func(a, b splitter) int { return cmp.Compare(a.key, b.key) })
	ranks, rank := make([]int32, len(mine)), 0
	for i, x := range mine {
		ranks[i] = c.ranks[x.rank]
		if x.rank == c.rank {
			rank = i
		}
	}
	return newComm(c.g, context, rank, ranks), nil
}

// splitter is the argument of a rank to Split.
type splitter struct {
	rank       int
	color, key int64
}

// colors exchanges the colors and keys of all ranks.
func (c *Comm) colors(ctx context.Context, color, key int) ([]splitter, error) {
	const size = 16
	mine, all := make([]byte, size), make([]byte, size*c.Size())
	binary.LittleEndian.PutUint64(mine, uint64(color))
	binary.LittleEndian.PutUint64(mine[8:], uint64(key))
	if err := c.Allgather(ctx, mine, all); err != nil {
		return nil, err
	}
	list := make([]splitter, c.Size())
	for i := range list {
		x := all[i*size:]
		list[i] = splitter{i, int64(binary.LittleEndian.Uint64(x)), int64(binary.LittleEndian.Uint64(x[8:]))}
	}
	return list, nil
}

// Free releases the context of the communicator, for another one, when every rank of it has
// called Free. No operation may be in flight in it, and it must not be used any more. The world
// cannot be freed.
func (c *Comm) Free() {
	if c.freed || c.context == worldContext {
		return
	}
	c.freed = true
	c.g.contexts.free(c.context)
}
