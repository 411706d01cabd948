package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/wireup"
)

// likeRC2 is a second transport that connects endpoint to endpoint. It is worse than frc.
func likeRC2() faketp.Kind {
	k := faketp.LikeRC()
	k.Name, k.Latency = "frc2", 3*k.Latency
	return k
}

// rails is a connected pair over frc, with frc2 as the second choice.
func rails(t *testing.T) *pair {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), likeRC2(), faketp.LikeUD())
	p.connect().warm()
	require.Equal(t, "frc", p.a.ep.lane(wireup.RMA).Iface.kind())
	return p
}

// breakLane makes the transport endpoint of a lane fail.
func breakLane(e *EP, role wireup.Role, st ucs.Status) *faketp.Iface {
	x := e.lane(role).EP.(*faketp.EP)
	x.Fail(st)
	return x.Iface
}

// peerEP returns the EP of a worker to its only peer.
func (x *end) peerEP(t *testing.T) *EP {
	t.Helper()
	require.Equal(t, 1, x.w.eps.Len())
	for e := range x.w.eps.All() {
		return e
	}
	return nil
}

// checkMoved checks that both ends use frc2 only, and that operations work.
func (p *pair) checkMoved(t *testing.T) {
	t.Helper()
	require.NoError(t, p.finish(p.a.ep.Put(pattern(100, 5), p.a.key.Addr(), p.a.key, nil)))
	require.NoError(t, p.flush())
	requireBytes(t, pattern(100, 5), p.b.mem.Bytes()[:100])
	var old uint64
	require.NoError(t, p.finish(p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.a.key.Addr()+128, p.a.key)))
	for _, e := range []*EP{p.a.ep, p.b.peerEP(t)} {
		p.until(e.link.conn.Quiet)
		require.NoError(t, e.Err())
		n := 0
		for i := range e.link.lanes.All {
			if x := &e.link.lanes.All[i]; x.EP != nil {
				assert.Equal(t, "frc2", x.Iface.kind())
				n++
			}
		}
		assert.Equal(t, 1, n, "lanes")
	}
}

// TestFailover_UnpostedMoves: operations wait for a full queue. If the lane breaks, they use the next lane, and
// the operations in the queue fail with the reason.
func TestFailover_UnpostedMoves(t *testing.T) {
	for _, at := range []string{"here", "at the peer"} {
		t.Run(at, func(t *testing.T) {
			p := rails(t)
			x := p.a.ep.lane(wireup.RMA).EP.(*faketp.EP)
			x.Iface.Frozen = true
			var reqs []*Request
			bufs := make([][]byte, 8)
			for i := range bufs {
				bufs[i] = pattern(32, i)
				r, err := p.a.ep.Get(bufs[i], p.a.key.Addr()+uint64(1024+64*i), p.a.key, nil)
				require.NoError(t, err)
				reqs = append(reqs, r)
			}
			if at == "here" {
				x.Fail(ucs.StatusTimedOut)
				x.Iface.Frozen = false
			} else {
				breakLane(p.b.peerEP(t), wireup.RMA, ucs.StatusTimedOut)
			}
			var lost, moved int
			for i, r := range reqs {
				switch err := p.finish(r, nil); {
				case err == nil:
					requireBytes(t, make([]byte, 32), bufs[i])
					moved++
				default:
					require.ErrorIs(t, err, ucs.ErrTimedOut)
					assert.NotErrorIs(t, err, ucs.ErrEPFailed)
					lost++
				}
			}
			assert.Equal(t, faketp.LikeRC().Depth, lost, "the depth of the queue")
			assert.Equal(t, len(reqs)-lost, moved)
			x.Iface.Frozen = false
			require.ErrorIs(t, p.flush(), ucs.ErrTimedOut, "a flush reports it")
			require.NoError(t, p.flush(), "once")
			p.checkMoved(t)
			assert.Contains(t, p.a.ep.Explain(), "failed transport: frc fake0:1: ")
		})
	}
}

// TestFailover_PartlyPosted: a put that was posted in part fails with the lane. A loop of compare-and-swap that
// waits for resources continues over another lane, because its earlier steps had no effect.
func TestFailover_PartlyPosted(t *testing.T) {
	t.Run("put", func(t *testing.T) {
		p := rails(t)
		put, err := p.a.ep.Put(pattern(20*faketp.MaxBcopy, 3), p.a.key.Addr()+1024, p.a.key, nil)
		require.NoError(t, err)
		require.Positive(t, put.off)
		require.Less(t, put.off, 20*faketp.MaxBcopy)
		breakLane(p.a.ep, wireup.RMA, ucs.StatusTimedOut)
		require.ErrorIs(t, p.finish(put, nil), ucs.ErrTimedOut)
		require.ErrorIs(t, p.flush(), ucs.ErrTimedOut)
		p.checkMoved(t)
	})
	t.Run("loop", func(t *testing.T) {
		p := rails(t)
		i := p.a.ep.lane(wireup.RMA).EP.(*faketp.EP).Iface
		var old uint64
		loop, err := p.a.ep.AtomicFetch(uct.AtomicXor, 8, 6, &old, p.a.key.Addr()+128, p.a.key)
		require.NoError(t, err)
		i.Hook = func() { i.Stuck = true } // the first step completes, the next one waits
		p.a.w.Progress()
		require.NotZero(t, loop.flags&reqQueued)
		i.Hook, i.Stuck = nil, false
		breakLane(p.a.ep, wireup.RMA, ucs.StatusTimedOut)
		require.NoError(t, p.finish(loop, nil))
		assert.Equal(t, byte(6), p.b.mem.Bytes()[128])
		require.ErrorIs(t, p.flush(), ucs.ErrTimedOut)
		p.until(p.a.ep.link.conn.Quiet)
		assert.Equal(t, "frc2", p.a.ep.lane(wireup.AMO).Iface.kind())
	})
}

// TestFailover_WithinPost: the failed post of an operation detects that the lane is broken.
func TestFailover_WithinPost(t *testing.T) {
	var old uint64
	ops := map[string]func(p *pair) (*Request, error){
		"put":   func(p *pair) (*Request, error) { return p.a.ep.Put([]byte{7}, p.a.key.Addr(), p.a.key, nil) },
		"bcopy": func(p *pair) (*Request, error) { return p.a.ep.Put(pattern(100, 1), p.a.key.Addr(), p.a.key, nil) },
		"get":   func(p *pair) (*Request, error) { return p.a.ep.Get(make([]byte, 8), p.a.key.Addr(), p.a.key, nil) },
		"post": func(p *pair) (*Request, error) {
			return nil, p.a.ep.AtomicPost(uct.AtomicAdd, 8, 1, p.a.key.Addr(), p.a.key)
		},
		"fetch": func(p *pair) (*Request, error) {
			return p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.a.key.Addr(), p.a.key)
		},
		"swap loop": func(p *pair) (*Request, error) {
			return p.a.ep.AtomicFetch(uct.AtomicXor, 8, 1, &old, p.a.key.Addr(), p.a.key)
		},
		"fence": func(p *pair) (*Request, error) { return nil, p.a.ep.Fence() },
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			p := rails(t)
			breakLane(p.a.ep, wireup.RMA, ucs.StatusIOError)
			require.NoError(t, p.finish(op(p)))
			assert.ErrorIs(t, p.flush(), ucs.ErrIO, "puts may have been lost")
			p.checkMoved(t)
		})
	}
	t.Run("flush", func(t *testing.T) {
		p := rails(t)
		breakLane(p.a.ep, wireup.RMA, ucs.StatusIOError)
		assert.ErrorIs(t, p.flush(), ucs.ErrIO)
		p.checkMoved(t)
	})
}

// TestFailover_FailsTheEP: there is no other lane, or the peer has died.
func TestFailover_FailsTheEP(t *testing.T) {
	for _, tc := range []struct {
		name  string
		st    ucs.Status
		twice bool
		want  error
	}{
		{"reset", ucs.StatusConnReset, false, ucs.ErrConnReset},
		{"closed", ucs.StatusPeerClosed, false, ucs.ErrPeerClosed},
		{"the last lane", ucs.StatusTimedOut, true, ucs.ErrTimedOut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := rails(t)
			breakLane(p.a.ep, wireup.RMA, tc.st)
			if tc.twice {
				assert.ErrorIs(t, p.flush(), tc.want)
				p.checkMoved(t)
				breakLane(p.a.ep, wireup.RMA, tc.st)
			}
			r, err := p.a.ep.Put(pattern(100, 1), p.a.key.Addr(), p.a.key, nil)
			if err = p.finish(r, err); err == nil {
				err = p.flush()
			}
			require.ErrorIs(t, err, tc.want)
			require.ErrorIs(t, p.a.ep.Err(), tc.want)
			assert.ErrorIs(t, p.a.ep.Err(), ucs.ErrEPFailed)
			if tc.twice { // the peer is alive, and gets the reason
				p.until(func() bool { return p.b.w.eps.Len() == 0 })
			}
		})
	}
}

// TestFailover_AtomicsByTheTarget: if the reply to an atomic is lost with its lane, the operation fails.
func TestFailover_AtomicsByTheTarget(t *testing.T) {
	first, second := faketp.LikeTCP(), faketp.LikeTCP()
	second.Name, second.Latency = "ftcp2", 2*faketp.LikeUD().Latency
	p, _ := fakePair(t, Config{}, first, second)
	p.connect().warm()
	lane := p.a.ep.lane(wireup.AM)
	require.Equal(t, "ftcp", lane.Iface.kind())
	var old uint64
	r, err := p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.a.key.Addr(), p.a.key)
	require.NoError(t, err)
	p.a.w.Progress() // it is in flight
	lane.EP.(*faketp.EP).Fail(ucs.StatusTimedOut)
	require.ErrorIs(t, p.finish(r, nil), ucs.ErrTimedOut)
	require.ErrorIs(t, p.flush(), ucs.ErrTimedOut)
	require.NoError(t, p.finish(p.a.ep.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.a.key.Addr(), p.a.key)))
	assert.Equal(t, "ftcp2", p.a.ep.lane(wireup.AM).Iface.kind())
	assert.NoError(t, p.a.ep.Err())
}

// TestFailover_RealTransports: the target rejects an access, which breaks a queue pair.
func TestFailover_RealTransports(t *testing.T) {
	for _, tc := range []struct {
		tls  []string
		from string
		to   string
	}{
		{[]string{`\rc`, "tcp"}, "rc", "tcp"},
		{[]string{"rc_mlx5", `\rc`}, "rc_mlx5", "rc"},
	} {
		t.Run(tc.from+" to "+tc.to, func(t *testing.T) {
			p := newPair(t, tlsets.Real(tc.from, tc.tls...), Config{}).connect().warm()
			require.Equal(t, tc.from, p.a.ep.lane(wireup.RMA).Iface.kind())
			gone, err := p.b.ctx.MemAlloc(4096)
			require.NoError(t, err)
			key, err := p.a.ep.Unpack(gone.Pack())
			require.NoError(t, err)
			defer key.Close()
			require.NoError(t, gone.Close())
			require.ErrorIs(t, p.finish(p.a.ep.Get(make([]byte, 64), key.Addr(), key, nil)), ucs.ErrRemoteAccess)
			p.until(func() bool {
				x := p.a.ep.lane(wireup.RMA)
				return x != nil && x.Iface.kind() == tc.to || p.a.ep.Err() != nil
			})
			require.NoError(t, p.a.ep.Err())
			require.Error(t, p.flush())
			require.NoError(t, p.finish(p.a.ep.Put(pattern(5000, 1), p.a.key.Addr(), p.a.key, nil)))
			require.NoError(t, p.flush())
			requireBytes(t, pattern(5000, 1), p.b.mem.Bytes()[:5000])
			require.NoError(t, p.a.ep.Err())
		})
	}
}
