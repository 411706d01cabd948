package ucp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/wrap"
	"github.com/gucx/gucx/wireup"
)

// noted is the notifications that a worker has received.
type noted struct {
	words []uint64
	from  map[*ucp.EP]bool
}

// noteWords records the notifications of x, and calls f for each.
func noteWords(x *ucppair.End, f func(word uint64)) *noted {
	n := &noted{from: map[*ucp.EP]bool{}}
	x.W.OnNotify(func(ep *ucp.EP, word uint64) {
		n.words = append(n.words, word)
		n.from[ep] = true
		f(word)
	})
	return n
}

func TestPutNotify(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		var sent []uint64
		seen := noteWords(&p.B, func(word uint64) { // the data has arrived already
			n := int(word)
			assert.Equal(t, testenv.Pattern(n, n), p.B.Mem.Bytes()[:n], "%d bytes", n)
		})
		for _, n := range tlsets.Sizes {
			for _, mem := range []*ucp.Mem{nil, p.A.Mem} {
				buf, params := testenv.Pattern(n, n), (*ucp.OpParams)(nil)
				if mem != nil {
					copy(mem.Bytes(), buf)
					buf, params = mem.Bytes()[:n], &ucp.OpParams{Mem: mem}
				}
				clear(p.B.Mem.Bytes())
				sent = append(sent, uint64(n))
				require.NoError(t, p.Finish(p.A.EP.PutNotify(buf, p.B.Mem.Addr(), p.A.Key, uint64(n), params)))
				p.Until(func() bool { return len(seen.words) == len(sent) })
				assert.Equal(t, n, int(seen.words[len(sent)-1]))
			}
		}
		require.NoError(t, p.Flush())
		idle(p)
		assert.Equal(t, sent, seen.words, "each once, and in order")
		assert.Len(t, seen.from, 1, "over one connection")
	})
}

// TestPutNotify_Many: of several puts in flight each notification arrives once, after its data. A flush covers them,
// and a fence delays later operations.
func TestPutNotify_Many(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		const n, size = 200, 256
		var all []byte
		for i := range n {
			all = append(all, testenv.Pattern(size, i)...)
		}
		fenced := false // the put after the fence has taken effect
		seen := noteWords(&p.B, func(word uint64) {
			got := p.B.Mem.Bytes()[word*size:][:size]
			assert.Equal(t, testenv.Pattern(size, int(word)), got, "word %d", word)
			if !fenced && p.B.Mem.Bytes()[tlsets.MemLen-1] == 1 {
				fenced = true
				assert.Equal(t, all, p.B.Mem.Bytes()[:n*size], "before operations after the fence")
			}
		})
		for i := range n {
			r, err := p.A.EP.PutNotify(testenv.Pattern(size, i), p.B.Mem.Addr()+uint64(i*size), p.A.Key, uint64(i), nil)
			require.NoError(t, err)
			if r != nil {
				r.Release()
			}
		}
		require.NoError(t, p.A.EP.Fence())
		require.NoError(t, p.Finish(p.A.EP.Put([]byte{1}, p.B.Mem.Addr()+tlsets.MemLen-1, p.A.Key, nil)))
		require.NoError(t, p.Flush())
		p.Until(func() bool { return len(seen.words) == n })
		assert.ElementsMatch(t, seq(n), seen.words)
	})
}

// overNotifying runs a test over each transport with notifications, and counts the messages of the ends.
func overNotifying(t *testing.T, f func(t *testing.T, p *ucppair.Pair, posted *posting)) {
	for _, set := range tlsets.RealSets() {
		open := set.Open
		posted := &posting{}
		set.Open = func(t testing.TB) (a, b []uct.Component) {
			a, b = open(t)
			return layered(a, posted.counting()), layered(b, posted.counting())
		}
		set.Run(t, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{})
			p.Connect().Warm()
			if p.A.EP.Lane(wireup.RMA).Notify == nil {
				t.Skip("the transport has no notifications")
			}
			f(t, p, posted)
		})
	}
}

// counting is a layer that counts messages.
func (p *posting) counting() wrap.Hooks { return wrap.Hooks{EP: func(e *wrap.EP) { e.Intercept(p) }} }

func layered(all []uct.Component, layer wrap.Hooks) (out []uct.Component) {
	for _, c := range all {
		out = append(out, wrap.Component(c, layer))
	}
	return out
}

// TestPutNotify_OneMessage: data and a word of 32 bits are one operation of the transport, for registered data of any
// length and without data. A larger word is a separate message.
func TestPutNotify_OneMessage(t *testing.T) {
	over := 0
	overNotifying(t, func(t *testing.T, p *ucppair.Pair, posted *posting) {
		over++
		var want []uint64
		seen := noteWords(&p.B, func(uint64) {})
		for _, n := range tlsets.Sizes {
			for _, mem := range []*ucp.Mem{nil, p.A.Mem} {
				if n > 8192 && mem == nil {
					continue // in fragments
				}
				buf, params := make([]byte, n), (*ucp.OpParams)(nil)
				if mem != nil {
					buf, params = mem.Bytes()[:n], &ucp.OpParams{Mem: mem}
				}
				for _, word := range []uint64{uint64(n), 1<<32 - 1, 1 << 32} {
					messages := 1
					if word>>32 != 0 && n > 0 {
						messages = 2
					}
					before := posted.messages
					require.NoError(t, p.Finish(p.A.EP.PutNotify(buf, p.B.Mem.Addr(), p.A.Key, word, params)))
					assert.Equal(t, messages, posted.messages-before, "%d bytes, word %#x", n, word)
					require.NoError(t, p.Flush())
					want = append(want, word)
				}
			}
		}
		p.Until(func() bool { return len(seen.words) == len(want) })
		assert.Equal(t, want, seen.words)
		assert.Len(t, seen.from, 1)
	})
	assert.GreaterOrEqual(t, over, 2, "rc and rc_mlx5")
}

func seq(n int) (s []uint64) {
	for i := range n {
		s = append(s, uint64(i))
	}
	return s
}

// TestPutNotify_Rejected: a put that is rejected, here or at the target, causes no event.
func TestPutNotify_Rejected(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		require.NoError(t, p.Finish(p.A.EP.SendActive(1, nil, nil, nil))) // connects the lane of messages
		seen := noteWords(&p.B, func(uint64) {})
		_, err := p.A.EP.PutNotify(make([]byte, 8), p.B.Mem.Addr()+tlsets.MemLen-4, p.A.Key, 1, nil)
		assert.ErrorIs(t, err, ucs.ErrRemoteAccess)
		_, err = p.A.EP.PutNotify(make([]byte, 8), p.B.Mem.Addr(), nil, 1, nil)
		assert.ErrorIs(t, err, uct.ErrInvalidRKey)
		_, err = p.A.EP.PutNotify(make([]byte, 8), p.B.Mem.Addr(), p.A.Key, 1, &ucp.OpParams{Mem: p.A.Mem})
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)

		gone, err := p.B.Ctx.MemAlloc(tlsets.MemLen)
		require.NoError(t, err)
		key, err := p.A.EP.Unpack(gone.Pack())
		require.NoError(t, err)
		require.NoError(t, gone.Close())
		for _, n := range []int{8, 20000} {
			r, err := p.A.EP.PutNotify(make([]byte, n), key.Addr(), key, 2, nil)
			if r != nil {
				r.Release()
			}
			if err == nil {
				assert.Error(t, p.Flush(), "%d bytes into memory that was closed", n)
			}
		}
		idle(p)
		assert.Empty(t, seen.words)
		key.Close()
	})
}

// TestPutNotify_LaneBreaks: the lane with the data breaks and loses it before its flush, also if another flush has
// reported that already. No word arrives, and the next put uses the next lane.
func TestPutNotify_LaneBreaks(t *testing.T) {
	near := faketp.LikeUD()
	near.Latency = faketp.LikeRC().Latency / 2
	for _, flushed := range []bool{false, true} {
		t.Run(fmt.Sprintf("flushed=%v", flushed), func(t *testing.T) {
			p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), likeRC2(), near)
			p.Connect()
			require.NoError(t, p.Finish(p.A.EP.SendActive(1, nil, nil, nil)))
			p.Warm()
			first, x := p.A.EP.Lane(wireup.AM), p.A.EP.Lane(wireup.RMA)
			require.Less(t, p.A.EP.Lanes().Index(first), p.A.EP.Lanes().Index(x))
			seen := noteWords(&p.B, func(uint64) {})
			y := x.EP.(*faketp.EP)
			y.Iface.Loses, y.Iface.Frozen = true, flushed
			var flush *ucp.Request
			if flushed {
				require.NoError(t, p.A.EP.PutImplicit(testenv.Pattern(100, 1), p.A.Key.Addr(), p.A.Key, nil))
				var err error
				flush, err = p.A.EP.Flush()
				require.NoError(t, err)
			}
			first.EP.(*faketp.EP).Iface.Stuck = true
			put, err := p.A.EP.PutNotify(testenv.Pattern(100, 2), p.A.Key.Addr(), p.A.Key, 1, nil)
			require.NoError(t, err)
			p.Until(func() bool { return flushed || y.Iface.Lost == 100 })
			y.Fail(ucs.StatusTimedOut)
			y.Iface.Frozen = false
			if flushed {
				require.ErrorIs(t, p.Finish(flush, nil), ucs.ErrTimedOut)
			}
			p.Until(func() bool { return x.Retired })
			require.False(t, put.Done(), "not all lanes are flushed")
			first.EP.(*faketp.EP).Iface.Stuck = false
			require.ErrorIs(t, p.Finish(put, nil), ucs.ErrTimedOut)
			require.NoError(t, p.A.EP.Err())
			require.NoError(t, p.Finish(p.A.EP.PutNotify(testenv.Pattern(100, 3), p.A.Key.Addr(), p.A.Key, 2, nil)))
			p.Until(func() bool { return len(seen.words) > 0 })
			assert.Equal(t, []uint64{2}, seen.words)
			testenv.RequireBytes(t, testenv.Pattern(100, 3), p.B.Mem.Bytes()[:100])
			assert.Equal(t, "frc2", kindOf(p.A.EP.Lane(wireup.RMA).Iface))
		})
	}
}

// TestPutNotify_Messages: notifications without a handler, or with an invalid connection, are counted and dropped.
func TestPutNotify_Messages(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	require.NoError(t, p.Finish(p.A.EP.PutNotify(nil, p.B.Mem.Addr(), p.A.Key, 7, nil)))
	require.NoError(t, p.Flush())
	idle(p)
	assert.EqualValues(t, 1, p.B.W.BadMessages().Load())
	seen := noteWords(&p.B, func(uint64) {})
	for k, bad := range [][]byte{nil, make([]byte, wire.NotifyLen), make([]byte, wire.NotifyLen+1)} {
		p.B.W.Handler(wire.AMNotify)(bad, nil)
		assert.EqualValues(t, k+2, p.B.W.BadMessages().Load())
	}
	assert.Empty(t, seen.words)
	p.B.W.OnNotify(nil)
}

// TestPutNotify_InHandler: a handler puts over the EP of a notification.
func TestPutNotify_InHandler(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("both ends have one handler")
		}
		p.Connect()
		back, err := p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		key, err := back.Unpack(p.A.Mem.Pack())
		require.NoError(t, err)
		noteWords(&p.B, func(word uint64) {
			r, err := back.PutNotify([]byte{byte(word)}, p.A.Mem.Addr(), key, word+1, nil)
			assert.NoError(t, err)
			if r != nil {
				r.Release()
			}
		})
		seen := noteWords(&p.A, func(word uint64) { assert.Equal(t, byte(word-1), p.A.Mem.Bytes()[0]) })
		for i := range uint64(10) {
			require.NoError(t, p.Finish(p.A.EP.PutNotify([]byte{1}, p.B.Mem.Addr(), p.A.Key, 2*i, nil)))
			p.Until(func() bool { return len(seen.words) == int(i)+1 })
			assert.Equal(t, 2*i+1, seen.words[i])
		}
		key.Close()
	})
}

// TestPutNotify_GivenUp: a canceled call does not use the buffer any more, and the EP works.
func TestPutNotify_GivenUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		ctx, stop := context.WithCancel(context.Background())
		stop()
		noteWords(&p.B, func(uint64) {})
		err := p.A.EP.PutNotifyWait(ctx, make([]byte, 20000), p.B.Mem.Addr(), p.A.Key, 1, nil)
		if err != nil { // otherwise it has completed at once
			assert.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, p.Finish(p.A.EP.PutNotify([]byte{3}, p.B.Mem.Addr(), p.A.Key, 2, nil)))
		require.NoError(t, p.Flush())
		idle(p)
	})
}

// TestPutNotify_PeerKilled: operations in flight when the peer is killed fail with the reason.
func TestPutNotify_PeerKilled(t *testing.T) {
	for _, tls := range []string{"sm", "tcp", `\rc`, "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			x := startTarget(t, tls)
			in := x.reach(t, tls)
			require.NoError(t, in.ep.PutNotifyWait(in.ctx, make([]byte, 100), in.key.Addr(), in.key, 1, nil))
			require.NoError(t, in.ep.FlushWait(in.ctx))
			require.NoError(t, x.cmd.Process.Kill())
			var err error
			for i := 0; err == nil; i++ {
				if err = in.ep.PutNotifyWait(in.ctx, make([]byte, 5000), in.key.Addr(), in.key, uint64(i), nil); err == nil {
					err = in.ep.FlushWait(in.ctx)
				}
			}
			assert.ErrorIs(t, err, ucs.ErrConnReset, fmt.Sprint(in.ep.Err()))
		})
	}
}
