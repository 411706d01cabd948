package kernel

import (
	"context"
	"time"

	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Comm exchanges messages between the ranks of a kernel and counts them. One goroutine uses it. Isend and Irecv start a
// message; the comm owns the buffer until WaitAll has returned.
type Comm struct {
	ctx     context.Context
	group   *ucpgroup.Comm // nil: a single rank
	pending []*ucpgroup.Request
	count   Count
}

// Count contains the counts of a rank.
type Count struct {
	Messages int           // sent, without those of sums
	Bytes    int           // in them
	Sums     int           // over all ranks
	Waiting  time.Duration // for messages and sums
}

// minus returns the counts after other.
func (c Count) minus(other Count) Count {
	return Count{c.Messages - other.Messages, c.Bytes - other.Bytes, c.Sums - other.Sums, c.Waiting - other.Waiting}
}

func (c Count) plus(other Count) Count {
	return Count{c.Messages + other.Messages, c.Bytes + other.Bytes, c.Sums + other.Sums, c.Waiting + other.Waiting}
}

// NewComm returns the comm of a rank. Waits end with ctx.
func NewComm(ctx context.Context, group *ucpgroup.Comm) *Comm { return &Comm{ctx: ctx, group: group} }

// Alone returns the comm of a single rank.
func Alone(ctx context.Context) *Comm { return &Comm{ctx: ctx} }

// Rank returns the number of the rank.
func (c *Comm) Rank() int {
	if c.group == nil {
		return 0
	}
	return c.group.Rank()
}

// Size returns the number of ranks.
func (c *Comm) Size() int {
	if c.group == nil {
		return 1
	}
	return c.group.Size()
}

// Isend starts to send b.
func (c *Comm) Isend(to, tag int, b []byte) error {
	c.count.Messages++
	c.count.Bytes += len(b)
	return c.posted(c.group.Isend(to, tag, b, nil))
}

// Irecv starts to receive into b.
func (c *Comm) Irecv(from, tag int, b []byte) error {
	return c.posted(c.group.Irecv(from, tag, b, nil))
}

func (c *Comm) posted(r *ucpgroup.Request, err error) error {
	if r != nil {
		c.pending = append(c.pending, r)
	}
	return err
}

// WaitAll waits for all started messages.
func (c *Comm) WaitAll() error {
	if len(c.pending) == 0 {
		return nil
	}
	begin := time.Now()
	err := ucpgroup.WaitAll(c.ctx, c.pending...)
	c.pending = c.pending[:0]
	c.count.Waiting += time.Since(begin)
	return err
}

// Sum adds each element of v over all ranks. All ranks must call it, and all get the result.
func (c *Comm) Sum(v ...*Sum) error {
	flat := make([]int64, 0, len(v)*len(Sum{}))
	for _, s := range v {
		flat = append(flat, s[:]...)
	}
	if err := c.SumInts(flat); err != nil {
		return err
	}
	for _, s := range v {
		copy(s[:], flat)
		flat = flat[len(s):]
	}
	return nil
}

// SumInts is Sum for integers.
func (c *Comm) SumInts(v []int64) error {
	c.count.Sums++
	if c.group == nil {
		return nil
	}
	begin := time.Now()
	err := ucpgroup.Allreduce(c.ctx, c.group, nil, v, ucpgroup.Sum[int64])
	c.count.Waiting += time.Since(begin)
	return err
}

// barrier returns after all ranks have called it.
func (c *Comm) barrier() error {
	if c.group == nil {
		return nil
	}
	return c.group.Barrier(c.ctx)
}
