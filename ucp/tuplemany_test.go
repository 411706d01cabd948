package ucp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/uct/ucttest/memtp"
)

// crowd is workers of one goroutine that all reach each other.
type crowd struct {
	t     testing.TB
	world *queued
	ends  []*end
	eps   [][]*EP // [from][to]
}

func newCrowd(t testing.TB, n int, cfg Config) *crowd {
	c := &crowd{t: t, world: &queued{world: memtp.NewWorld()}}
	for range n {
		x := &end{}
		var err error
		x.ctx, err = NewContext(cfg, c.world)
		require.NoError(t, err)
		x.w, err = x.ctx.NewWorker(WorkerConfig{})
		require.NoError(t, err)
		c.ends = append(c.ends, x)
		c.eps = append(c.eps, make([]*EP, n))
	}
	t.Cleanup(c.close)
	return c
}

func (c *crowd) close() {
	for _, x := range c.ends {
		assert.NoError(c.t, x.w.Close())
		assert.Zero(c.t, inUse(x.w), "requests that never came back")
		assert.NoError(c.t, x.ctx.Close())
	}
}

// ep is the connection between two of them.
func (c *crowd) ep(from, to int) *EP {
	if c.eps[from][to] == nil {
		e, err := c.ends[from].w.NewEP(c.ends[to].w.Address(), EPConfig{})
		require.NoError(c.t, err)
		c.eps[from][to] = e
	}
	return c.eps[from][to]
}

// until makes progress on all until ok.
func (c *crowd) until(ok func() bool) {
	c.t.Helper()
	testenv.ProgressWithin(c.t, patience, func() bool {
		for _, x := range c.ends {
			x.w.Progress()
		}
		return ok()
	})
}

// stat is the sum of a counter of tuples.
func (c *crowd) stat(name string) (n uint64) {
	for _, x := range c.ends {
		n += x.stat(name)
	}
	return n
}

// crowdOp is a message or a receive between two ranks.
type crowdOp struct {
	send      bool
	tag, mask uint64 // the mask of a receive
	id        uint64 // of a message; of that which a receive is to get, by the matcher
	buf       []byte
	req       *Request
}

// pairing is what happens between a rank that sends and one that receives, in order.
type pairing struct {
	from, to int
	ops      []*crowdOp
	posted   int
}

// match gives each receive, in order, the earliest message that it fits, as a serial matcher
// does, and returns a message or receive that is left, the first receive before all messages.
func (p *pairing) match() *crowdOp {
	taken := map[*crowdOp]bool{}
	var left *crowdOp
	for _, r := range p.ops {
		if r.send {
			continue
		}
		r.id = 0
		for _, s := range p.ops {
			if s.send && !taken[s] && (s.tag^r.tag)&r.mask == 0 {
				taken[s], r.id = true, s.id
				break
			}
		}
		if r.id == 0 && left == nil {
			left = r
		}
	}
	for _, s := range p.ops {
		if s.send && !taken[s] && left == nil {
			left = s
		}
	}
	return left
}

// plan draws what happens between two ranks: messages of a few tags and receives for them,
// one in thirty for any tag of the sender; each finds the other in the end.
func plan(rnd *rand.Rand, from, to, tags, count int, lastID *uint64) *pairing {
	p := &pairing{from: from, to: to}
	add := func(send bool, tag, mask uint64) {
		o := &crowdOp{send: send, tag: tag, mask: mask, buf: make([]byte, 400)}
		if send {
			*lastID++
			o.id, o.buf = *lastID, o.buf[:8+rnd.IntN(300)]
			binary.LittleEndian.PutUint64(o.buf, o.id)
		}
		p.ops = append(p.ops, o)
	}
	base := uint64(from) << 16
	for range count {
		tag := base | uint64(rnd.IntN(tags))
		switch {
		case rnd.IntN(60) == 0:
			add(false, base, ^uint64(0xffff))
		default:
			add(rnd.IntN(2) == 0, tag, exact)
		}
	}
	for o := p.match(); o != nil; o = p.match() {
		add(!o.send, o.tag, exact)
	}
	return p
}

// next posts the next operation.
func (c *crowd) next(p *pairing) {
	o := p.ops[p.posted]
	p.posted++
	var err error
	if o.send {
		o.req, err = c.ep(p.from, p.to).TagSend(o.tag, o.buf, nil)
	} else {
		o.req, err = c.ends[p.to].w.TagRecv(o.buf, o.tag, o.mask, nil, nil)
	}
	require.NoError(c.t, err)
}

// TestTuple_ManyRanks: 64 workers exchange messages of 1,024 tuples, with receives for any
// tag of a sender in between, and each receive gets what a serial matcher gives it.
func TestTuple_ManyRanks(t *testing.T) {
	const ranks, peers, tags = 64, 4, 4
	cfg := tupleq
	cfg.TupleqMax = 12 // of 16 at each rank
	c := newCrowd(t, ranks, cfg)
	rnd := rand.New(rand.NewPCG(7, 11))
	var all, open []*pairing
	lastID := uint64(0)
	for from := range ranks {
		for k := range peers {
			all = append(all, plan(rnd, from, (from+1+k*k)%ranks, tags, 150, &lastID))
		}
	}
	for open = append(open, all...); len(open) > 0; {
		k := rnd.IntN(len(open))
		p := open[k]
		for n := rnd.IntN(6); n > 0 && p.posted < len(p.ops); n-- {
			c.next(p)
		}
		if p.posted == len(p.ops) {
			open[k] = open[len(open)-1]
			open = open[:len(open)-1]
		}
		c.ends[rnd.IntN(ranks)].w.Progress()
		c.ends[p.from].w.Progress()
		c.ends[p.to].w.Progress()
	}
	for _, p := range all {
		for k, o := range p.ops {
			if o.req != nil {
				c.until(o.req.Done)
				require.NoError(t, o.req.err())
				o.req.Release()
			}
			if !o.send {
				require.Equal(t, o.id, binary.LittleEndian.Uint64(o.buf), "operation %d: receive of tag %#x, mask %#x", k, o.tag, o.mask)
			}
		}
	}
	t.Logf("%d of %d messages through %d queues, %d sent again, %d closed for wildcards, %d evicted, %d without a connection",
		c.stat("receives"), lastID, c.stat("opened"), c.stat("resent"), c.stat("closed_wildcard"), c.stat("closed_evicted"), c.stat("closed_busy"))
	assert.Positive(t, c.stat("receives"))
	assert.Positive(t, c.stat("resent"))
	assert.Positive(t, c.stat("closed_wildcard"))
}
