package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/timing"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func open(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	if cfg.Params == (timing.Params{}) {
		cfg.Params = timing.ConnectXDDR()
	}
	cfg.UCP.TLS = config.Allow(`\rc`)
	c, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

const full = ^uint64(0)

// send and receive wait.
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

// swap has both ranks of a pair send to the other.
func swap(r *Rank) error {
	peer := 1 - r.ID()
	buf := []byte{byte(r.ID())}
	if err := send(r, peer, buf, nil); err != nil {
		return err
	}
	return receive(r, peer, buf, nil)
}

// A run in virtual time does not depend on how long it takes: no keepalive and no timeout of real time
// posts anything into it.
func TestRun_KeepaliveOfRealTime(t *testing.T) {
	run := func(pause time.Duration) (end time.Duration, stats timing.Stats) {
		c := open(t, Config{Ranks: 2, UCP: ucp.Config{KeepaliveInterval: time.Millisecond}})
		require.NoError(t, c.Prepare(swap))
		_, err := c.Run(func(r *Rank) error {
			for range 5 {
				if err := swap(r); err != nil {
					return err
				}
				time.Sleep(pause)
			}
			end = max(end, r.Now())
			return nil
		})
		require.NoError(t, err)
		return end, c.Stats()
	}
	fast, posts := run(0)
	slow, same := run(3 * time.Millisecond)
	assert.Equal(t, fast, slow)
	assert.Equal(t, posts, same)
}

// pingPong is the time of half a round trip.
func pingPong(t *testing.T, c *Cluster, n int) time.Duration {
	t.Helper()
	const rounds = 10
	require.NoError(t, c.Prepare(swap))
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

// Latency and bandwidth are near those of the machine; a run is the same each time.
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

// What a rank makes belongs to it, also when its part of Prepare is over: two ranks that send at once
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
		assert.InEpsilon(t, exchange(t, swap), exchange(t, prepare), 0.01, "rank %d", early)
	}
}

// exchange is how long two ranks need to send each other much at once.
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

// A rank that computes makes no progress: a message that needs its call waits until it has
// computed. One that is there by then costs its call only.
func TestCompute_NoProgress(t *testing.T) {
	const long = time.Millisecond
	for n, want := range map[int]time.Duration{8: long + 10*time.Microsecond, 256 << 10: long + 100*time.Microsecond} {
		c := open(t, Config{Ranks: 2})
		require.NoError(t, c.Prepare(swap))
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
			assert.Less(t, ends[0], long, "it was eager")
			assert.Less(t, ends[1], want)
		} else {
			assert.Greater(t, ends[0], long, "the rendezvous waited")
			assert.Greater(t, ends[1], want)
		}
	}
}

// All to all among ranks that share NICs: everything arrives, and takes longer than with a
// NIC each.
func TestNodes(t *testing.T) {
	const ranks = 8
	took := func(nodes int) (last time.Duration) {
		c := open(t, Config{Ranks: ranks, Nodes: nodes})
		all := func(n int) Program {
			return func(r *Rank) error {
				var waits []*ucp.Request
				bufs := make([][]byte, ranks)
				for peer := range ranks {
					if peer == r.ID() {
						continue
					}
					e, err := r.EP(peer)
					if err != nil {
						return err
					}
					bufs[peer] = make([]byte, n)
					in, err := r.Worker().TagRecv(bufs[peer], uint64(peer), full, nil, nil)
					if err != nil {
						return err
					}
					out := make([]byte, n)
					out[n-1] = byte(r.ID())
					q, err := e.TagSend(uint64(r.ID()), out, nil)
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
		require.NoError(t, c.Prepare(all(1)))
		ends, err := c.Run(all(20_000))
		require.NoError(t, err)
		for _, e := range ends {
			last = max(last, e)
		}
		return last
	}
	assert.Greater(t, took(2), 2*took(ranks))
}

// Who waits for what does not come is told.
func TestStalled(t *testing.T) {
	c := open(t, Config{Ranks: 2})
	require.NoError(t, c.Prepare(swap))
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

// Memory goes behind what uses it: receives of a run that has failed have theirs until Close.
func TestMemAlloc_RunFails(t *testing.T) {
	c := open(t, Config{Ranks: 2})
	require.NoError(t, c.Prepare(swap))
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
