package ucp_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/memtp"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca"
)

// crowd is workers of one goroutine that are all connected.
type crowd struct {
	t    testing.TB
	ends []*ucppair.End
	ctxs []*ucp.Context // contexts of the workers, each once
	eps  [][]*ucp.EP    // [from][to]
}

// newCrowd makes n workers. open returns the context of the next one, which several can share.
func newCrowd(t testing.TB, n int, open func() (*ucp.Context, error)) *crowd {
	c := &crowd{t: t}
	t.Cleanup(c.close)
	for range n {
		ctx, err := open()
		require.NoError(t, err)
		if !slices.Contains(c.ctxs, ctx) {
			c.ctxs = append(c.ctxs, ctx)
		}
		w, err := ctx.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		c.ends = append(c.ends, &ucppair.End{Ctx: ctx, W: w})
		c.eps = append(c.eps, make([]*ucp.EP, n))
	}
	return c
}

func (c *crowd) close() {
	for _, x := range c.ends {
		assert.NoError(c.t, x.W.Close())
		assert.Zero(c.t, ucp.RequestsInUse(x.W), "requests that were not released")
	}
	for _, ctx := range c.ctxs {
		assert.NoError(c.t, ctx.Close())
	}
}

// overMemory makes a context for each worker, in one world of the reference transport.
func overMemory(cfg ucp.Config) func() (*ucp.Context, error) {
	world := &queued{world: memtp.NewWorld()}
	return func() (*ucp.Context, error) { return ucp.NewContext(cfg, world) }
}

// overLoop makes one context for all workers, over xrc on the loop fabric, which connects the QPs of one open device.
func overLoop(t testing.TB, cfg ucp.Config) func() (*ucp.Context, error) {
	dev, err := softhca.NewDevice(softhca.Config{Fabric: softhca.FabricLoop})
	require.NoError(t, err)
	comps := all.Config{Devices: func() ([]*verbs.Device, error) { return []*verbs.Device{dev}, nil }}
	cfg.TLS = config.Allow(`\xrc`)
	ctx, err := ucp.NewContext(cfg, comps.Components()...)
	return func() (*ucp.Context, error) { return ctx, err }
}

// ep returns the EP of one worker to another one.
func (c *crowd) ep(from, to int) *ucp.EP {
	if c.eps[from][to] == nil {
		e, err := c.ends[from].W.NewEP(c.ends[to].W.Address(), ucp.EPConfig{})
		require.NoError(c.t, err)
		c.eps[from][to] = e
	}
	return c.eps[from][to]
}

// until makes progress on all workers until ok returns true.
func (c *crowd) until(ok func() bool) {
	c.t.Helper()
	testenv.ProgressWithin(c.t, testenv.Watchdog, func() bool {
		for _, x := range c.ends {
			x.W.Progress()
		}
		return ok()
	})
}

// stat returns the sum of a counter of tuple queues.
func (c *crowd) stat(name string) (n uint64) {
	for _, x := range c.ends {
		n += tupleStat(x.W, name)
	}
	return n
}

// crowdOp is a message or a receive between two ranks.
type crowdOp struct {
	send      bool
	tag, mask uint64 // the mask of a receive
	id        uint64 // of a message; for a receive, of the message that the matcher assigns
	buf       []byte
	req       *ucp.Request
}

// pairing is the sequence of operations between a rank that sends and one that receives.
type pairing struct {
	from, to int
	ops      []*crowdOp
	posted   int
}

// match assigns to each receive, in order, the earliest message with its tag, as a serial matcher does. It returns a
// message or receive that is left, the first receive before all messages.
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

// plan draws the sequence between two ranks: messages with a few tags and receives for them, one in thirty for any tag.
// All of them match in the end.
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
		o.req, err = c.ends[p.to].W.TagRecv(o.buf, o.tag, o.mask, nil, nil)
	}
	require.NoError(c.t, err)
}

// TestTuple_ManyRanks: 16 workers, 64 in a sweep, exchange messages of 16 tuples each, with some receives for any tag
// of a sender. Each receive gets the message of a serial matcher.
func TestTuple_ManyRanks(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	cfg := tupleq
	cfg.TupleqMax = 12 // of 16 at each rank
	many := 16
	if testenv.Sweep() {
		many = 64
	}
	t.Run("queues", func(t *testing.T) { manyRanks(newCrowd(t, many, overMemory(cfg)), 150) })
	t.Run("xrc", func(t *testing.T) {
		ranks := 8 // at least, so that each has four different peers
		if testenv.Soak() {
			ranks = 64
		}
		manyRanks(newCrowd(t, ranks, overLoop(t, cfg)), 150)
	})
}

// manyRanks makes each rank send to four others with four tags, about count operations each.
func manyRanks(c *crowd, count int) {
	const peers, tags = 4, 4
	t, ranks := c.t, len(c.ends)
	rnd := rand.New(rand.NewPCG(7, 11))
	var every, open []*pairing
	lastID := uint64(0)
	for from := range ranks {
		for k := range peers {
			every = append(every, plan(rnd, from, (from+1+k*(k+1)/2)%ranks, tags, count, &lastID))
		}
	}
	for open = append(open, every...); len(open) > 0; {
		k := rnd.IntN(len(open))
		p := open[k]
		for n := rnd.IntN(6); n > 0 && p.posted < len(p.ops); n-- {
			c.next(p)
		}
		if p.posted == len(p.ops) {
			open[k] = open[len(open)-1]
			open = open[:len(open)-1]
		}
		c.ends[rnd.IntN(ranks)].W.Progress()
		c.ends[p.from].W.Progress()
		c.ends[p.to].W.Progress()
	}
	for _, p := range every {
		for k, o := range p.ops {
			if o.req != nil {
				c.until(o.req.Done)
				require.NoError(t, o.req.Result())
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
