package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca/timing"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func open(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	return openOver(t, "rc", cfg)
}

// openOver opens a cluster over one transport, or several that are separated by +.
func openOver(t *testing.T, transports string, cfg Config) *Cluster {
	t.Helper()
	if cfg.Params == (timing.Params{}) {
		cfg.Params = timing.ConnectXDDR()
	}
	var tls []string
	for name := range strings.SplitSeq(transports, "+") {
		tls = append(tls, ucp.Exact(name))
	}
	cfg.UCP.TLS = config.Allow(tls...)
	c, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

const full = ^uint64(0)

// send and receive wait for completion.
func send(r *Rank, peer int, buf []byte, p *ucp.OpParams) error {
	e, err := r.EP(peer)
	if err != nil {
		return err
	}
	q, err := e.TagSend(uint64(r.ID()), buf, p)
	if err != nil {
		return err
	}
	return r.Wait(q)
}

func receive(r *Rank, peer int, buf []byte, p *ucp.OpParams) error {
	q, err := r.Worker().TagRecv(buf, uint64(peer), full, nil, p)
	if err != nil {
		return err
	}
	return r.Wait(q)
}

// exchangePair makes each rank of a pair send to the other.
func exchangePair(r *Rank) error {
	peer := 1 - r.ID()
	buf := []byte{byte(r.ID())}
	if err := send(r, peer, buf, nil); err != nil {
		return err
	}
	return receive(r, peer, buf, nil)
}

// transports are those that run in virtual time, alone and with sm for ranks of one node.
var transports = []string{"rc", "rc_mlx5", "ud", "ud_mlx5", "xrc", "xrc_mlx5",
	"rc+sm", "rc_mlx5+sm", "ud+sm", "ud_mlx5+sm", "xrc+sm", "xrc_mlx5+sm"}

// A run in virtual time has the same result each time, whatever its real time: no keepalive, timeout or retransmission
// depends on real time.
func TestRun_SameEachTime(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	const ranks = 5
	run := func(transport string, pause time.Duration) (ends []time.Duration, stats timing.Stats) {
		cfg := Config{Ranks: ranks, Nodes: 2, SM: someSM, UCP: ucp.Config{KeepaliveInterval: time.Millisecond, RndvThresh: 8 << 10}}
		cfg.UCT.UD.RTO, cfg.UCT.UDMLX5.RTO = time.Millisecond, time.Millisecond
		c := openOver(t, transport, cfg)
		require.NoError(t, c.Prepare(toAll(t, 1)))
		for _, n := range []int{8, 1000, 20_000} {
			all := toAll(t, n)
			more, err := c.Run(func(r *Rank) error {
				for range 3 {
					if err := all(r); err != nil {
						return err
					}
					time.Sleep(pause)
				}
				return nil
			})
			require.NoError(t, err)
			ends = append(ends, more...)
		}
		return ends, c.Stats()
	}
	for _, transport := range transports {
		ends, stats := run(transport, 0)
		again, same := run(transport, time.Millisecond)
		assert.Equal(t, ends, again, transport)
		assert.Equal(t, stats, same, transport)
	}
}

// pingPong returns the time of half a round trip.
func pingPong(t *testing.T, c *Cluster, n int) time.Duration {
	t.Helper()
	const rounds = 10
	require.NoError(t, c.Prepare(exchangePair))
	var took time.Duration
	_, err := c.Run(func(r *Rank) error {
		buf := make([]byte, n)
		begin := r.Now()
		for range rounds {
			if r.ID() == 0 {
				if err := send(r, 1, buf, nil); err != nil {
					return err
				}
			}
			if err := receive(r, 1-r.ID(), buf, nil); err != nil {
				return err
			}
			if r.ID() == 1 {
				if err := send(r, 0, buf, nil); err != nil {
					return err
				}
			}
		}
		if r.ID() == 0 {
			took = r.Now() - begin
		}
		return nil
	})
	require.NoError(t, err)
	return took / (2 * rounds)
}

// Latency and bandwidth are near those of the machine; each run has the same result.
func TestPingPong(t *testing.T) {
	for n, want := range map[int]struct{ least, most time.Duration }{
		1:        {time.Microsecond, 2 * time.Microsecond},
		1024:     {2 * time.Microsecond, 5 * time.Microsecond},
		64 << 10: {33 * time.Microsecond, 66 * time.Microsecond}, // at 2 and at 1 GB/s
	} {
		took := pingPong(t, open(t, Config{Ranks: 2}), n)
		assert.Greater(t, took, want.least, n)
		assert.Less(t, took, want.most, n)
		assert.Equal(t, took, pingPong(t, open(t, Config{Ranks: 2}), n), n)
	}
}

// Each message costs a post, the read of a completion, and the software time of both sides: once, whether the
// transport releases entries of its completion queue before it handles them (rc) or after that (rc_mlx5).
func TestPingPong_Costs(t *testing.T) {
	testenv.SkipRace(t, "in virtual time one goroutine runs at a time")
	const more = timing.Microsecond
	for _, transport := range []string{"rc", "rc_mlx5"} {
		run := func(change func(*Config)) time.Duration {
			cfg := Config{Ranks: 2, Params: timing.ConnectX6()}
			change(&cfg)
			return pingPong(t, openOver(t, transport, cfg), 8)
		}
		base := run(func(*Config) {})
		for name, change := range map[string]func(*Config){
			"post":       func(c *Config) { c.Params.PostCall += more },
			"completion": func(c *Config) { c.Params.CQERead += more },
			"receive":    func(c *Config) { c.Software.Receive += more },
			"software of a post": func(c *Config) {
				for v := range c.Software.Post {
					c.Software.Post[v] = c.Params.PostCall + more
				}
			},
		} {
			assert.Equal(t, base+duration(more), run(change), "%s: %s", transport, name)
		}
	}
}

// Objects that a rank creates belong to it, also after its part of Prepare: two ranks that send at the same time
// do not share a wire.
func TestPrepare_DoneEarly(t *testing.T) {
	for early := range 2 {
		prepare := func(r *Rank) error {
			if r.ID() == early {
				_, err := r.EP(1 - early)
				return err
			}
			return send(r, early, []byte{1}, nil)
		}
		assert.InEpsilon(t, exchange(t, exchangePair), exchange(t, prepare), 0.01, "rank %d", early)
	}
}

// exchange returns the time in which two ranks send large messages to each other at the same time.
func exchange(t *testing.T, prepare Program) time.Duration {
	t.Helper()
	c := open(t, Config{Ranks: 2})
	require.NoError(t, c.Prepare(prepare))
	ends, err := c.Run(func(r *Rank) error {
		e, err := r.EP(1 - r.ID())
		if err != nil {
			return err
		}
		out, err := e.TagSend(9, make([]byte, 1<<20), nil)
		if err != nil {
			return err
		}
		in, err := r.Worker().TagRecv(make([]byte, 1<<20), 9, full, nil, nil)
		if err != nil {
			return err
		}
		return errors.Join(r.Wait(in), r.Wait(out))
	})
	require.NoError(t, err)
	return slices.Max(ends)
}

// A rank that computes makes no progress: a message that needs a call of the rank waits until it has
// computed. A message that has arrived by then costs only the call.
func TestCompute_NoProgress(t *testing.T) {
	const long = time.Millisecond
	for n, want := range map[int]time.Duration{8: long + 10*time.Microsecond, 256 << 10: long + 100*time.Microsecond} {
		c := open(t, Config{Ranks: 2})
		require.NoError(t, c.Prepare(exchangePair))
		ends, err := c.Run(func(r *Rank) error {
			buf := make([]byte, n)
			if r.ID() == 0 {
				return send(r, 1, buf, nil)
			}
			q, err := r.Worker().TagRecv(buf, 0, full, nil, nil)
			if err != nil {
				return err
			}
			begin := r.Now()
			r.Compute(long)
			assert.Equal(t, long, r.Now()-begin)
			assert.False(t, q.Done())
			return r.Wait(q)
		})
		require.NoError(t, err)
		if n == 8 {
			assert.Less(t, ends[0], long, "end of an eager send")
			assert.Less(t, ends[1], want)
		} else {
			assert.Greater(t, ends[0], long, "end of a rendezvous send")
			assert.Greater(t, ends[1], want)
		}
	}
}

// toAll makes each rank send n bytes to all others, and check the messages that it receives.
func toAll(t *testing.T, n int) Program {
	return func(r *Rank) error {
		ranks := len(r.c.Ranks())
		var waits []*ucp.Request
		bufs := make([][]byte, ranks)
		for peer := range ranks {
			if peer == r.ID() {
				continue
			}
			bufs[peer] = make([]byte, n)
			in, err := r.Worker().TagRecv(bufs[peer], uint64(peer), full, nil, nil)
			if err != nil {
				return err
			}
			out := make([]byte, n)
			out[n-1] = byte(r.ID())
			q, err := r.TagSend(peer, uint64(r.ID()), out, nil)
			if err != nil {
				return err
			}
			waits = append(waits, in, q)
		}
		for _, q := range waits {
			if err := r.Wait(q); err != nil {
				return err
			}
		}
		for peer, b := range bufs {
			if peer != r.ID() && b[n-1] != byte(peer) {
				t.Errorf("rank %d: %d from %d", r.ID(), b[n-1], peer)
			}
		}
		return nil
	}
}

// In an all-to-all of ranks that share NICs all messages arrive, and take longer than with a NIC for each rank.
func TestNodes(t *testing.T) {
	const ranks = 8
	took := func(nodes int) (last time.Duration) {
		c := open(t, Config{Ranks: ranks, Nodes: nodes})
		require.NoError(t, c.Prepare(toAll(t, 1)))
		ends, err := c.Run(toAll(t, 20_000))
		require.NoError(t, err)
		for _, e := range ends {
			last = max(last, e)
		}
		return last
	}
	assert.Greater(t, took(2), 2*took(ranks))
}

// A rank that waits for a message that cannot arrive gets ErrStalled.
func TestStalled(t *testing.T) {
	c := open(t, Config{Ranks: 2})
	require.NoError(t, c.Prepare(exchangePair))
	_, err := c.Run(func(r *Rank) error { return receive(r, 1-r.ID(), nil, nil) })
	require.ErrorIs(t, err, timing.ErrStalled)
}

func TestErrors(t *testing.T) {
	gone := errors.New("gone")
	c := open(t, Config{Ranks: 2})
	require.ErrorIs(t, c.Prepare(func(r *Rank) error {
		if r.ID() == 1 {
			return gone
		}
		return receive(r, 1, nil, nil)
	}), gone)
	for _, cfg := range []Config{{}, {Ranks: 2, Nodes: 3}, {Ranks: 1}} {
		_, err := Open(cfg)
		assert.Error(t, err)
	}
}

// Memory is freed after its users: receives of a failed run use theirs until Close.
func TestMemAlloc_RunFails(t *testing.T) {
	c := open(t, Config{Ranks: 2})
	require.NoError(t, c.Prepare(exchangePair))
	gone := errors.New("gone")
	_, err := c.Run(func(r *Rank) error {
		m, err := c.MemAlloc(1 << 16)
		if err != nil {
			return err
		}
		if _, err := r.Worker().TagRecv(m.Bytes(), 1, full, nil, &ucp.OpParams{Mem: m}); err != nil {
			return err
		}
		return gone
	})
	require.ErrorIs(t, err, gone)
	require.NoError(t, c.Close())
}

// TestGetBcopy_CopiesLater: the data of a get is copied when it arrives, so that later gets can be posted before that.
func TestGetBcopy_CopiesLater(t *testing.T) {
	p := timing.ConnectXDDR()
	m, err := timing.New(p)
	require.NoError(t, err)
	lower := &gets{}
	g := &copyingGetter{lower, m}
	copied := timing.Second * 1000 / timing.Time(p.CopyBandwidth)
	_, err = m.Run(0, []timing.Step{func() (bool, error) {
		done := &uct.Completion{Count: 1, Func: func(*uct.Completion) {}}
		begin := m.Now()
		pending, err := g.GetBcopy(make([]byte, 1000), 0, 0, done)
		assert.True(t, pending)
		assert.Equal(t, begin, m.Now(), "posted")
		lower.posted.Complete(ucs.StatusOK)
		assert.Equal(t, begin+copied, m.Now(), "the data has arrived")
		assert.Zero(t, done.Count)
		return true, err
	}})
	require.NoError(t, err)
}

// gets stores the completion of the latest get.
type gets struct {
	uct.Getter
	posted *uct.Completion
}

func (g *gets) GetBcopy(_ []byte, _ uint64, _ uct.RKey, c *uct.Completion) (bool, error) {
	g.posted = c
	return true, nil
}
