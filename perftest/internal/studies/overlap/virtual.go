package overlap

import (
	"context"
	"errors"
	"time"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/perftest/internal/studies/cluster"
	"github.com/gucx/gucx/perftest/internal/studies/protocol"
	"github.com/gucx/gucx/ucp"
)

// Virtual connects two nodes of a cluster in virtual time.
func Virtual(params timing.Params) Opener {
	return func(_ context.Context, p protocol.Protocol, size int) (_ Pair, err error) {
		cfg, err := Config(p)
		if err != nil {
			return nil, err
		}
		v := &virtualPair{}
		defer func() {
			if err != nil {
				err = errors.Join(err, v.Close())
			}
		}()
		v.c, err = cluster.Open(cluster.Config{Params: params, Ranks: len(v.memory), UCP: cfg.UCP, UCT: cfg.UCT})
		if err != nil {
			return nil, err
		}
		for i := range v.memory {
			m, err := v.c.MemAlloc(size)
			if err != nil {
				return nil, err
			}
			v.memory[i] = Memory{m.Bytes(), m}
			v.gates[i].open(v.c.Ranks()[i].Worker())
		}
		return v, v.c.Prepare(v.connect)
	}
}

type virtualPair struct {
	c      *cluster.Cluster
	memory [2]Memory // of the measured node, and of the other
	gates  [2]gate
}

// virtualNode is a rank with the other one as its peer.
type virtualNode struct {
	*cluster.Rank
	gate *gate
}

// EP implements Node.
func (n virtualNode) EP() (*ucp.EP, error) { return n.Rank.EP(1 - n.ID()) }

// Gate implements Node.
func (n virtualNode) Gate() *gate { return n.gate }

// TagSend implements Node.
func (n virtualNode) TagSend(tag uint64, buf []byte, p *ucp.OpParams) (*ucp.Request, error) {
	return n.Rank.TagSend(1-n.ID(), tag, buf, p)
}

// connect exchanges messages in both directions.
func (v *virtualPair) connect(r *cluster.Rank) error {
	for _, side := range []Side{Isend, Irecv} {
		x := Exchange{Side: side, Size: 1, Iterations: 1}
		if err := v.part(r, x, nil); err != nil {
			return err
		}
	}
	return nil
}

// part is a rank's part of an exchange.
func (v *virtualPair) part(r *cluster.Rank, x Exchange, took *time.Duration) (err error) {
	m, n := v.memory[r.ID()], virtualNode{r, &v.gates[r.ID()]}
	if r.ID() == 1 {
		return x.Serve(n, m)
	}
	d, err := x.Measure(n, m)
	if took != nil {
		*took = d
	}
	return err
}

// Run implements Pair.
func (v *virtualPair) Run(ctx context.Context, x Exchange) (t Times, err error) {
	if ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	_, err = v.c.Run(func(r *cluster.Rank) error { return v.part(r, x, &t.Iteration) })
	return t, err
}

// Close implements Pair.
func (v *virtualPair) Close() error {
	if v.c == nil {
		return nil
	}
	return v.c.Close()
}
