package sp

import (
	"context"
	"strings"

	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/ucpgroup"
)

// Over is a Comm over the ranks of a group. Its goroutine is that of the group's worker.
type Over struct {
	ctx    context.Context
	comm   *ucpgroup.Comm
	owner  *ucp.Context
	mem    *ucp.Mem
	params ucp.OpParams
	reqs   []*ucpgroup.Request
}

// NewOver returns a comm over the world of g; owner owns the worker of g. Waits end with ctx. Close it after the
// group's worker: until then outstanding operations use its memory.
func NewOver(ctx context.Context, owner *ucp.Context, g *ucpgroup.Group) *Over {
	return &Over{ctx: ctx, comm: g.World(), owner: owner}
}

// alloc returns registered memory for all messages, of n bytes; nil for none.
func (o *Over) alloc(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	m, err := o.owner.MemAlloc(n)
	if err != nil {
		return nil, err
	}
	o.mem, o.params.Mem = m, m
	return m.Bytes(), nil
}

// Close frees the memory of messages. Idempotent.
func (o *Over) Close() error {
	if o.mem == nil {
		return nil
	}
	return o.mem.Close()
}

// queued returns the number of messages that this rank has sent through queues of TupleQ.
func (o *Over) queued() (n int) {
	for name, count := range o.comm.Group().Worker().Stats().Snapshot().All() {
		if strings.HasSuffix(name, queuedCounter) {
			n += int(count)
		}
	}
	return n
}

// queuedCounter is the name of the counter of package ucp for queued.
const queuedCounter = "tupleq.sends"

// Rank implements Comm.
func (o *Over) Rank() int { return o.comm.Rank() }

// Size implements Comm.
func (o *Over) Size() int { return o.comm.Size() }

// Isend implements Comm.
func (o *Over) Isend(to, tag int, b []byte) error {
	return o.posted(o.comm.Isend(to, tag, b, &o.params))
}

// Irecv implements Comm.
func (o *Over) Irecv(from, tag int, b []byte) error {
	return o.posted(o.comm.Irecv(from, tag, b, &o.params))
}

// posted stores a request for WaitAll.
func (o *Over) posted(r *ucpgroup.Request, err error) error {
	if r != nil {
		o.reqs = append(o.reqs, r)
	}
	return err
}

// WaitAll implements Comm.
func (o *Over) WaitAll() error {
	err := ucpgroup.WaitAll(o.ctx, o.reqs...)
	o.reqs = o.reqs[:0]
	return err
}

// Sum implements Comm.
func (o *Over) Sum(v []float64) error {
	return ucpgroup.Allreduce(o.ctx, o.comm, nil, v, ucpgroup.Sum[float64])
}

// Barrier implements Comm.
func (o *Over) Barrier() error { return o.comm.Barrier(o.ctx) }
