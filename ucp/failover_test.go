package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
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
func rails(t *testing.T) *ucppair.Pair {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), likeRC2(), faketp.LikeUD())
	p.Connect().Warm()
	require.Equal(t, "frc", kindOf(p.A.EP.Lane(wireup.RMA).Iface))
	return p
}

// breakLane makes the transport endpoint of a lane fail.
func breakLane(e *ucp.EP, role wireup.Role, st ucs.Status) *faketp.Iface {
	x := e.Lane(role).EP.(*faketp.EP)
	x.Fail(st)
	return x.Iface
}

// peerEP returns the EP of a worker to its only peer.
func peerEP(t *testing.T, x *ucppair.End) *ucp.EP {
	t.Helper()
	require.Equal(t, 1, x.W.EPs().Len())
	for e := range x.W.EPs().All() {
		return e
	}
	return nil
}

// checkMoved checks that both ends use frc2 only, and that operations work.
func checkMoved(t *testing.T, p *ucppair.Pair) {
	t.Helper()
	require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(100, 5), p.A.Key.Addr(), p.A.Key, nil)))
	require.NoError(t, p.Flush())
	testenv.RequireBytes(t, testenv.Pattern(100, 5), p.B.Mem.Bytes()[:100])
	var old uint64
	require.NoError(t, p.Finish(p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.A.Key.Addr()+128, p.A.Key)))
	for _, e := range []*ucp.EP{p.A.EP, peerEP(t, &p.B)} {
		p.Until(e.Handshake().Quiet)
		require.NoError(t, e.Err())
		n := 0
		for i := range e.Lanes().All {
			if x := &e.Lanes().All[i]; x.EP != nil {
				assert.Equal(t, "frc2", kindOf(x.Iface))
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
			x := p.A.EP.Lane(wireup.RMA).EP.(*faketp.EP)
			x.Iface.Frozen = true
			var reqs []*ucp.Request
			bufs := make([][]byte, 8)
			for i := range bufs {
				bufs[i] = testenv.Pattern(32, i)
				r, err := p.A.EP.Get(bufs[i], p.A.Key.Addr()+uint64(1024+64*i), p.A.Key, nil)
				require.NoError(t, err)
				reqs = append(reqs, r)
			}
			if at == "here" {
				x.Fail(ucs.StatusTimedOut)
				x.Iface.Frozen = false
			} else {
				breakLane(peerEP(t, &p.B), wireup.RMA, ucs.StatusTimedOut)
			}
			var lost, moved int
			for i, r := range reqs {
				switch err := p.Finish(r, nil); {
				case err == nil:
					testenv.RequireBytes(t, make([]byte, 32), bufs[i])
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
			require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut, "a flush reports it")
			require.NoError(t, p.Flush(), "once")
			checkMoved(t, p)
			assert.Contains(t, p.A.EP.Explain(), "failed transport: frc fake0:1: ")
		})
	}
}

// TestFailover_PartlyPosted: a put that was posted in part fails with the lane. A loop of compare-and-swap that
// waits for resources continues over another lane, because its earlier steps had no effect.
func TestFailover_PartlyPosted(t *testing.T) {
	t.Run("put", func(t *testing.T) {
		p := rails(t)
		put, err := p.A.EP.Put(testenv.Pattern(20*faketp.MaxBcopy, 3), p.A.Key.Addr()+1024, p.A.Key, nil)
		require.NoError(t, err)
		require.Positive(t, put.Offset())
		require.Less(t, put.Offset(), 20*faketp.MaxBcopy)
		breakLane(p.A.EP, wireup.RMA, ucs.StatusTimedOut)
		require.ErrorIs(t, p.Finish(put, nil), ucs.ErrTimedOut)
		require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut)
		checkMoved(t, p)
	})
	t.Run("loop", func(t *testing.T) {
		p := rails(t)
		i := p.A.EP.Lane(wireup.RMA).EP.(*faketp.EP).Iface
		var old uint64
		loop, err := p.A.EP.AtomicFetch(uct.AtomicXor, 8, 6, &old, p.A.Key.Addr()+128, p.A.Key)
		require.NoError(t, err)
		i.Hook = func() { i.Stuck = true } // the first step completes, the next one waits
		p.A.W.Progress()
		require.True(t, loop.Queued())
		i.Hook, i.Stuck = nil, false
		breakLane(p.A.EP, wireup.RMA, ucs.StatusTimedOut)
		require.NoError(t, p.Finish(loop, nil))
		assert.Equal(t, byte(6), p.B.Mem.Bytes()[128])
		require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut)
		p.Until(p.A.EP.Handshake().Quiet)
		assert.Equal(t, "frc2", kindOf(p.A.EP.Lane(wireup.AMO).Iface))
	})
}

// TestFailover_WithinPost: the failed post of an operation detects that the lane is broken.
func TestFailover_WithinPost(t *testing.T) {
	var old uint64
	ops := map[string]func(p *ucppair.Pair) (*ucp.Request, error){
		"put": func(p *ucppair.Pair) (*ucp.Request, error) {
			return p.A.EP.Put([]byte{7}, p.A.Key.Addr(), p.A.Key, nil)
		},
		"bcopy": func(p *ucppair.Pair) (*ucp.Request, error) {
			return p.A.EP.Put(testenv.Pattern(100, 1), p.A.Key.Addr(), p.A.Key, nil)
		},
		"get": func(p *ucppair.Pair) (*ucp.Request, error) {
			return p.A.EP.Get(make([]byte, 8), p.A.Key.Addr(), p.A.Key, nil)
		},
		"post": func(p *ucppair.Pair) (*ucp.Request, error) {
			return nil, p.A.EP.AtomicPost(uct.AtomicAdd, 8, 1, p.A.Key.Addr(), p.A.Key)
		},
		"fetch": func(p *ucppair.Pair) (*ucp.Request, error) {
			return p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.A.Key.Addr(), p.A.Key)
		},
		"swap loop": func(p *ucppair.Pair) (*ucp.Request, error) {
			return p.A.EP.AtomicFetch(uct.AtomicXor, 8, 1, &old, p.A.Key.Addr(), p.A.Key)
		},
		"fence": func(p *ucppair.Pair) (*ucp.Request, error) { return nil, p.A.EP.Fence() },
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			p := rails(t)
			breakLane(p.A.EP, wireup.RMA, ucs.StatusIOError)
			require.NoError(t, p.Finish(op(p)))
			assert.ErrorIs(t, p.Flush(), ucs.ErrIO, "puts may have been lost")
			checkMoved(t, p)
		})
	}
	t.Run("flush", func(t *testing.T) {
		p := rails(t)
		breakLane(p.A.EP, wireup.RMA, ucs.StatusIOError)
		assert.ErrorIs(t, p.Flush(), ucs.ErrIO)
		checkMoved(t, p)
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
			breakLane(p.A.EP, wireup.RMA, tc.st)
			if tc.twice {
				assert.ErrorIs(t, p.Flush(), tc.want)
				checkMoved(t, p)
				breakLane(p.A.EP, wireup.RMA, tc.st)
			}
			r, err := p.A.EP.Put(testenv.Pattern(100, 1), p.A.Key.Addr(), p.A.Key, nil)
			if err = p.Finish(r, err); err == nil {
				err = p.Flush()
			}
			require.ErrorIs(t, err, tc.want)
			require.ErrorIs(t, p.A.EP.Err(), tc.want)
			assert.ErrorIs(t, p.A.EP.Err(), ucs.ErrEPFailed)
			if tc.twice { // the peer is alive, and gets the reason
				p.Until(func() bool { return p.B.W.EPs().Len() == 0 })
			}
		})
	}
}

// TestFailover_AtomicsByTheTarget: if the reply to an atomic is lost with its lane, the operation fails.
func TestFailover_AtomicsByTheTarget(t *testing.T) {
	first, second := faketp.LikeTCP(), faketp.LikeTCP()
	second.Name, second.Latency = "ftcp2", 2*faketp.LikeUD().Latency
	p, _ := ucppair.Fake(t, ucp.Config{}, first, second)
	p.Connect().Warm()
	lane := p.A.EP.Lane(wireup.AM)
	require.Equal(t, "ftcp", kindOf(lane.Iface))
	var old uint64
	r, err := p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.A.Key.Addr(), p.A.Key)
	require.NoError(t, err)
	p.A.W.Progress() // it is in flight
	lane.EP.(*faketp.EP).Fail(ucs.StatusTimedOut)
	require.ErrorIs(t, p.Finish(r, nil), ucs.ErrTimedOut)
	require.ErrorIs(t, p.Flush(), ucs.ErrTimedOut)
	require.NoError(t, p.Finish(p.A.EP.AtomicFetch(uct.AtomicAdd, 8, 1, &old, p.A.Key.Addr(), p.A.Key)))
	assert.Equal(t, "ftcp2", kindOf(p.A.EP.Lane(wireup.AM).Iface))
	assert.NoError(t, p.A.EP.Err())
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
			p := ucppair.New(t, tlsets.Real(tc.from, tc.tls...), ucp.Config{}).Connect().Warm()
			require.Equal(t, tc.from, kindOf(p.A.EP.Lane(wireup.RMA).Iface))
			gone, err := p.B.Ctx.MemAlloc(4096)
			require.NoError(t, err)
			key, err := p.A.EP.Unpack(gone.Pack())
			require.NoError(t, err)
			defer key.Close()
			require.NoError(t, gone.Close())
			require.ErrorIs(t, p.Finish(p.A.EP.Get(make([]byte, 64), key.Addr(), key, nil)), ucs.ErrRemoteAccess)
			p.Until(func() bool {
				x := p.A.EP.Lane(wireup.RMA)
				return x != nil && kindOf(x.Iface) == tc.to || p.A.EP.Err() != nil
			})
			require.NoError(t, p.A.EP.Err())
			require.Error(t, p.Flush())
			require.NoError(t, p.Finish(p.A.EP.Put(testenv.Pattern(5000, 1), p.A.Key.Addr(), p.A.Key, nil)))
			require.NoError(t, p.Flush())
			testenv.RequireBytes(t, testenv.Pattern(5000, 1), p.B.Mem.Bytes()[:5000])
			require.NoError(t, p.A.EP.Err())
		})
	}
}
