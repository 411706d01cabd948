package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// flagLen is the length of messages that use rendezvous without flags, in bytes. It is less than half of a window.
const flagLen = tlsets.RndvThresh + 1000

// TestOpFlags_Eager: with SendEager the send completes without a receive, and without the flag it does not.
func TestOpFlags_Eager(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		data, buf := testenv.Pattern(flagLen, 1), make([]byte, flagLen)
		require.NoError(t, p.Finish(p.A.EP.TagSend(1, data, &ucp.OpParams{Flags: ucp.SendEager})))
		require.NoError(t, p.Finish(p.A.EP.TagSendData(2, ucp.Buffers(pieces(data)), &ucp.OpParams{Flags: ucp.SendEager})))
		waitUnexpected(p, 2)
		for m := range p.B.W.Tags().Messages() {
			assert.False(t, m.Owner.Announced())
		}
		later, err := p.A.EP.TagSend(3, data, nil)
		require.NoError(t, err)
		waitUnexpected(p, 3)
		assert.False(t, later.Done(), "without the flag")
		for tag := range uint64(3) {
			clear(buf)
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, tag+1, exact, nil, nil)))
			testenv.RequireBytes(t, data, buf)
		}
		require.NoError(t, p.Finish(later, nil))
	})
}

// TestOpFlags_EagerWithoutCredit: eager messages of a sender without credit wait, and arrive in order. A message above
// half of the window, which would need all credit, uses rendezvous.
func TestOpFlags_EagerWithoutCredit(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		data, buf := testenv.Pattern(flagLen, 2), make([]byte, flagLen)
		var sent []*ucp.Request
		for p.A.EP.Messages().Credit >= window.Charge(flagLen) {
			require.NoError(t, p.Finish(p.A.EP.TagSend(uint64(len(sent)), data, &ucp.OpParams{Flags: ucp.SendEager})))
			sent = append(sent, nil)
		}
		eager := len(sent)
		r, err := p.A.EP.TagSend(uint64(eager), data, &ucp.OpParams{Flags: ucp.SendEager})
		require.NoError(t, err)
		require.NotNil(t, r)
		assert.False(t, r.UsesRendezvous())
		long := testenv.Pattern(int(p.A.EP.Messages().Most), 3)
		last, err := p.A.EP.TagSend(uint64(eager+1), long, &ucp.OpParams{Flags: ucp.SendEager})
		require.NoError(t, err)
		require.NotNil(t, last)
		for tag := range uint64(eager + 1) {
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, tag, exact, nil, nil)))
			testenv.RequireBytes(t, data, buf)
		}
		require.NoError(t, p.Finish(r, nil))
		buf = make([]byte, len(long))
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, uint64(eager+1), exact, nil, nil)))
		testenv.RequireBytes(t, long, buf)
		require.NoError(t, p.Finish(last, nil))
	})
}

// TestOpFlags_Rendezvous: with SendRendezvous the data of a small message remains at the sender.
func TestOpFlags_Rendezvous(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		for _, n := range []int{0, 8, 500} {
			data, buf := testenv.Pattern(n, n), make([]byte, n)
			r, err := p.A.EP.TagSend(1, data, &ucp.OpParams{Flags: ucp.SendRendezvous})
			require.NoError(t, err)
			waitUnexpected(p, 1)
			assert.False(t, r.Done())
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 1, exact, nil, nil)))
			testenv.RequireBytes(t, data, buf)
			require.NoError(t, p.Finish(r, nil))

			var kept *ucp.ActiveMessage
			p.B.W.OnActive(5, func(m *ucp.ActiveMessage) {
				assert.Nil(t, m.Data)
				kept = m.Keep()
			})
			r, err = p.A.EP.SendActive(5, []byte("head"), data, &ucp.OpParams{Flags: ucp.SendRendezvous})
			require.NoError(t, err)
			p.Until(func() bool { return kept != nil })
			assert.False(t, r.Done())
			assert.Equal(t, "head", string(kept.Header))
			clear(buf)
			require.NoError(t, p.Finish(kept.Recv(buf, nil)))
			kept.Release()
			testenv.RequireBytes(t, data, buf)
			require.NoError(t, p.Finish(r, nil))
		}
	})
}

// TestOpFlags_Later: every operation has a request with CompleteLater, and Progress reports it once.
func TestOpFlags_Later(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Both().Warm()
		reported, called, done := 0, 0, false
		params := &ucp.OpParams{Flags: ucp.CompleteLater, OnDone: func(err error) {
			assert.NoError(t, err)
			assert.True(t, done, "after the call has returned")
			reported++
		}}
		var active *ucp.ActiveMessage
		streamEnd := p.B.EP
		if p.Oneself() {
			streamEnd = p.A.EP
		}
		p.B.W.OnActive(6, func(m *ucp.ActiveMessage) { active = m.Keep() })
		small, n := []byte("12345678"), 0
		for _, op := range []struct {
			name string
			do   func() (*ucp.Request, error)
		}{
			{"tag send", func() (*ucp.Request, error) { return p.A.EP.TagSend(1, small, params) }},
			{"tag receive", func() (*ucp.Request, error) {
				waitUnexpected(p, 1)
				return p.B.W.TagRecv(make([]byte, 8), 1, exact, nil, params)
			}},
			{"tag send of a list", func() (*ucp.Request, error) { return p.A.EP.TagSendData(2, ucp.Buffers(pieces(small)), params) }},
			{"tag receive of a list", func() (*ucp.Request, error) {
				waitUnexpected(p, 1)
				return p.B.W.TagRecvData(ucp.Buffers(pieces(make([]byte, 8))), 2, exact, nil, params)
			}},
			{"posted receive", func() (*ucp.Request, error) { return p.B.W.TagRecv(make([]byte, 8), 3, exact, nil, params) }},
			{"its send", func() (*ucp.Request, error) { return p.A.EP.TagSend(3, small, params) }},
			{"active message", func() (*ucp.Request, error) { return p.A.EP.SendActive(6, nil, small, params) }},
			{"its receive", func() (*ucp.Request, error) {
				p.Until(func() bool { return active != nil })
				return active.Recv(make([]byte, 8), params)
			}},
			{"stream send", func() (*ucp.Request, error) { return p.A.EP.StreamSend(small, params) }},
			{"stream receive", func() (*ucp.Request, error) {
				p.Until(func() bool {
					m := streamEnd.Messages()
					return m != nil && m.Stream() != nil && m.Stream().Unread() > 0
				})
				return streamEnd.StreamRecv(make([]byte, 8), true, &n, params)
			}},
			{"put", func() (*ucp.Request, error) { return p.A.EP.Put(small, p.A.Key.Addr(), p.A.Key, params) }},
			{"put of nothing", func() (*ucp.Request, error) { return p.A.EP.Put(nil, p.A.Key.Addr(), p.A.Key, params) }},
			{"get", func() (*ucp.Request, error) { return p.A.EP.Get(make([]byte, 8), p.A.Key.Addr(), p.A.Key, params) }},
			{"send to a probe", func() (*ucp.Request, error) { return p.A.EP.TagSend(4, small, params) }},
			{"receive after a probe", func() (*ucp.Request, error) {
				waitUnexpected(p, 1)
				m, _, _ := p.B.W.TagProbe(4, exact, true)
				return m.Recv(make([]byte, 8), nil, params)
			}},
			{"stream send of nothing", func() (*ucp.Request, error) { return p.A.EP.StreamSend(nil, params) }},
			{"second stream send", func() (*ucp.Request, error) { return p.A.EP.StreamSend(small, params) }},
			{"stream receive into a list", func() (*ucp.Request, error) {
				p.Until(func() bool { return streamEnd.Messages().Stream().Unread() > 0 })
				return streamEnd.StreamRecvData(ucp.Buffers(pieces(make([]byte, 8))), true, &n, params)
			}},
		} {
			done = false
			r, err := op.do()
			done = true
			require.NoError(t, err, op.name)
			require.NotNil(t, r, op.name)
			called++
			r.Release()
			if op.name != "posted receive" { // it completes with the send
				p.Until(func() bool { return reported == called })
			}
		}
		active.Release()
		require.NoError(t, p.Flush())
		assert.Equal(t, called, reported)
	})
}

// TestOpFlags_LaterRendezvous: a receive of a rendezvous active message returns a request with CompleteLater, also if a
// mapping of the memory of the sender completes it in the call.
func TestOpFlags_LaterRendezvous(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p.Both()).Warm()
		from, to := memOf(t, &p.A, flagLen), memOf(t, &p.B, flagLen)
		copy(from.Bytes(), testenv.Pattern(flagLen, 4))
		var active *ucp.ActiveMessage
		p.B.W.OnActive(6, func(m *ucp.ActiveMessage) { active = m.Keep() })
		for i := range 4 { // the first receives connect lanes
			reported, recv := 0, (*ucp.Request)(nil)
			sent, err := p.A.EP.SendActive(6, nil, from.Bytes(), &ucp.OpParams{Mem: from, Flags: ucp.SendRendezvous})
			require.NoError(t, err)
			p.Until(func() bool { return active != nil })
			clear(to.Bytes())
			params := &ucp.OpParams{Mem: to, Flags: ucp.CompleteLater, OnDone: func(err error) {
				assert.NoError(t, err)
				reported++
			}}
			if i%2 == 0 {
				recv, err = active.Recv(to.Bytes(), params)
			} else {
				recv, err = active.RecvData(ucp.Buffers(pieces(to.Bytes())), &ucp.OpParams{Flags: ucp.CompleteLater, OnDone: params.OnDone})
			}
			require.NoError(t, err)
			require.NotNil(t, recv)
			assert.Zero(t, reported)
			p.Until(func() bool { return reported == 1 })
			require.NoError(t, p.Finish(recv, nil))
			testenv.RequireBytes(t, from.Bytes(), to.Bytes())
			active.Release()
			active = nil
			require.NoError(t, p.Finish(sent, nil))
		}
	})
}

// TestOpFlags_NowConnects: an operation with CompleteNow fails until the EP is connected, connects it, and then
// takes effect once.
func TestOpFlags_NowConnects(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		now := &ucp.OpParams{Flags: ucp.CompleteNow}
		refused := 0
		p.Until(func() bool {
			r, err := p.A.EP.TagSend(1, []byte("now"), now)
			require.Nil(t, r)
			if err != nil {
				require.True(t, err == ucs.ErrNoResource, "%v", err)
				refused++
			}
			return err == nil
		})
		assert.Positive(t, refused)
		buf := make([]byte, 10)
		info := &ucp.TagInfo{}
		p.Until(func() bool {
			r, err := p.B.W.TagRecv(buf, 1, exact, info, now)
			require.Nil(t, r)
			require.True(t, err == nil || err == ucs.ErrNoResource, "%v", err)
			return err == nil
		})
		assert.Equal(t, "now", string(buf[:info.Length]))
		require.NoError(t, p.Flush())
		_, err := p.B.W.TagRecv(buf, 1, exact, info, now)
		assert.True(t, err == ucs.ErrNoResource, "the first message was sent")
		p.Until(func() bool {
			_, err = p.A.EP.Put([]byte("put"), p.A.Key.Addr(), p.A.Key, now)
			return err != ucs.ErrNoResource
		})
		require.NoError(t, err)
		require.NoError(t, p.Flush())
		assert.Equal(t, "put", string(p.B.Mem.Bytes()[:3]))
	})
}

// TestOpFlags_NowWithoutEffect: an operation that cannot complete in the call has no effect.
func TestOpFlags_NowWithoutEffect(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p).Warm()
		now := &ucp.OpParams{Flags: ucp.CompleteNow}
		refused := func(what string, r *ucp.Request, err error) {
			t.Helper()
			assert.Nil(t, r, what)
			assert.True(t, err == ucs.ErrNoResource, "%s: %v", what, err)
		}
		r, err := p.A.EP.TagSend(1, make([]byte, flagLen*4), now)
		refused("too long", r, err)
		r, err = p.A.EP.TagSendSync(1, []byte{1}, now)
		refused("synchronous", r, err)
		r, err = p.A.EP.TagSend(1, []byte{1}, &ucp.OpParams{Flags: ucp.CompleteNow | ucp.SendRendezvous})
		refused("rendezvous", r, err)
		r, err = p.A.EP.StreamSend(make([]byte, flagLen*4), now)
		refused("stream", r, err)
		waits, err := p.A.EP.TagSend(2, make([]byte, flagLen), &ucp.OpParams{Flags: ucp.SendRendezvous})
		require.NoError(t, err)
		waitUnexpected(p, 1)
		r, err = p.B.W.TagRecv(make([]byte, flagLen), 2, exact, nil, now)
		refused("receive of a rendezvous message", r, err)
		require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, flagLen), 2, exact, nil, nil)))
		require.NoError(t, p.Finish(waits, nil))

		buf := make([]byte, 1)
		r, err = p.A.EP.Get(buf, p.A.Key.Addr(), p.A.Key, now)
		refused("get", r, err)
		if _, err := p.A.Key.Slice(); err == nil {
			p.B.Mem.Bytes()[0] = 17
			r, err = p.A.EP.Get(buf, p.A.Key.Addr(), p.A.Key, now)
			require.NoError(t, err)
			assert.Nil(t, r)
			assert.Equal(t, byte(17), buf[0])
		}
		require.NoError(t, p.Flush())
		assert.Zero(t, p.B.W.Tags().Unexpected(), "nothing was sent")
	})
}

// TestOpFlags_NowWithoutCredit: a sender that never waits sends as much as its credit permits, in order.
func TestOpFlags_NowWithoutCredit(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		growWindow(p)
		n, data := 0, testenv.Pattern(1000, 5)
		for err := error(nil); ; {
			data[0] = byte(n)
			if _, err = p.A.EP.TagSend(7, data, &ucp.OpParams{Flags: ucp.CompleteNow}); err == nil {
				n++
				continue
			}
			require.True(t, err == ucs.ErrNoResource, "%v", err)
			if p.A.EP.Messages().Credit < window.Charge(len(data)) {
				break
			}
			p.Step() // a queue of the transport was full
		}
		require.Positive(t, n)
		waitUnexpected(p, n)
		buf := make([]byte, len(data))
		for i := range n {
			_, err := p.B.W.TagRecv(buf, 7, exact, nil, &ucp.OpParams{Flags: ucp.CompleteNow})
			require.NoError(t, err)
			require.Equal(t, byte(i), buf[0])
		}
	})
}

// TestOpFlags_NowWithoutResources: sends on a full lane queue nothing, and OnDone is not called.
func TestOpFlags_NowWithoutResources(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	growWindow(p).Warm()
	from, to := openStream(p)
	now := &ucp.OpParams{Flags: ucp.CompleteNow, OnDone: func(err error) { t.Errorf("OnDone(%v) of a call without a request", err) }}
	sends := []func(data []byte) (*ucp.Request, error){
		func(data []byte) (*ucp.Request, error) { return from.TagSend(1, data, now) },
		func(data []byte) (*ucp.Request, error) { return from.TagSendData(2, ucp.Buffers(pieces(data)), now) },
		func(data []byte) (*ucp.Request, error) { return from.SendActive(3, nil, data, now) },
		func(data []byte) (*ucp.Request, error) { return from.StreamSend(data, now) },
		func(data []byte) (*ucp.Request, error) { return from.StreamSendData(ucp.Buffers(pieces(data)), now) },
		func(data []byte) (*ucp.Request, error) { return from.Put(data, p.A.Key.Addr(), p.A.Key, now) },
	}
	got := 0
	p.B.W.OnActive(3, func(*ucp.ActiveMessage) { got++ })
	credit, made, waits := from.Messages().Credit, p.A.W.RequestsMade(), counters(p.A.W)["worker.waits_for_resources"]
	f.IfaceOf(0, 0).Stuck = true
	for range 10 * ucp.RequestChunk {
		for i, send := range sends {
			r, err := send([]byte("12345678"))
			require.Nil(t, r, i)
			require.True(t, err == ucs.ErrNoResource, "%d: %v", i, err)
		}
	}
	assert.Equal(t, credit, from.Messages().Credit)
	assert.Equal(t, made, p.A.W.RequestsMade(), "requests are recycled")
	assert.Equal(t, waits, counters(p.A.W)["worker.waits_for_resources"])
	assert.False(t, from.Busy())
	f.IfaceOf(0, 0).Stuck = false
	idle(p)
	assert.Zero(t, got)
	for i, send := range sends {
		r, err := send([]byte("12345678"))
		require.NoError(t, err, i)
		require.Nil(t, r, i)
		idle(p)
	}
	waitUnexpected(p, 2)
	assert.Equal(t, 1, got)
	testenv.RequireBytes(t, []byte("1234567812345678"), readStream(p, to, 16))
}

// TestOpFlags_NowWithoutLane: an EP that has lost the lanes of messages returns the reason.
func TestOpFlags_NowWithoutLane(t *testing.T) {
	p := growWindow(ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})).Warm()
	p.A.EP.LoseLane(wireup.AM, ucs.ErrTimedOut)
	_, err := p.A.EP.TagSend(1, nil, &ucp.OpParams{Flags: ucp.CompleteNow})
	assert.ErrorIs(t, err, ucs.ErrTimedOut)
}

// TestOpFlags_NowIgnores: SendRendezvous has no effect on streams, and an empty put needs no lane.
func TestOpFlags_NowIgnores(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		r, err := p.A.EP.Put(nil, p.A.Key.Addr(), p.A.Key, &ucp.OpParams{Flags: ucp.CompleteNow})
		assert.NoError(t, err, "not connected")
		assert.Nil(t, r)
		from, to := openStream(p)
		p.Until(func() bool {
			r, err = from.StreamSend([]byte("stream"), &ucp.OpParams{Flags: ucp.CompleteNow | ucp.SendRendezvous})
			require.Nil(t, r)
			return err != ucs.ErrNoResource
		})
		require.NoError(t, err)
		testenv.RequireBytes(t, []byte("stream"), readStream(p, to, 6))
	})
}

// TestOpFlags_NowRegistersNothing: a rejected get leaves no registration of its buffer in use.
func TestOpFlags_NowRegistersNothing(t *testing.T) {
	for _, set := range registerSets()[1:] {
		set.Run(t, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{}).Connect().Warm()
			mem := memOf(t, &p.B, registerLen)
			key, err := p.A.EP.Unpack(mem.Pack())
			require.NoError(t, err)
			defer key.Close()
			r, err := p.A.EP.Get(make([]byte, registerLen), mem.Addr(), key, &ucp.OpParams{Flags: ucp.CompleteNow})
			assert.Nil(t, r)
			assert.True(t, err == ucs.ErrNoResource, "%v", err)
			assert.Zero(t, registrations(&p.A))
		})
	}
}

// TestOpFlags_Implicit: implicit operations ignore flags.
func TestOpFlags_Implicit(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for _, n := range []int{8, tlsets.MemLen} {
			params := &ucp.OpParams{Flags: ucp.CompleteNow | ucp.CompleteLater, Mem: p.A.Mem}
			for range 2 { // before and after it has connected
				local, remote := p.A.Mem.Bytes()[:n], p.B.Mem.Bytes()[:n]
				copy(local, testenv.Pattern(n, n))
				require.NoError(t, p.A.EP.PutImplicit(local, p.A.Key.Addr(), p.A.Key, params))
				require.NoError(t, p.Flush())
				testenv.RequireBytes(t, testenv.Pattern(n, n), remote)
				clear(local)
				require.NoError(t, p.A.EP.GetImplicit(local, p.A.Key.Addr(), p.A.Key, params))
				require.NoError(t, p.Flush())
				testenv.RequireBytes(t, testenv.Pattern(n, n), local)
			}
		}
	})
}

// TestOpFlags_Wrong: all operations reject flags that contradict each other.
func TestOpFlags_Wrong(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{}).Both().Warm()
	var active *ucp.ActiveMessage
	p.B.W.OnActive(2, func(m *ucp.ActiveMessage) { active = m.Keep() })
	require.NoError(t, p.Finish(p.A.EP.TagSend(2, []byte{1}, nil)))
	require.NoError(t, p.Finish(p.A.EP.SendActive(2, nil, []byte{1}, nil)))
	waitUnexpected(p, 1)
	p.Until(func() bool { return active != nil })
	tagged, _, _ := p.B.W.TagProbe(2, exact, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, list := 0, ucp.Buffers(pieces(make([]byte, 9)))
	for _, f := range append(ucp.FlagGroups[:], ucp.AllOpFlags+1) {
		params := &ucp.OpParams{Flags: f}
		for i, op := range []func() (*ucp.Request, error){
			func() (*ucp.Request, error) { return p.A.EP.TagSend(1, nil, params) },
			func() (*ucp.Request, error) { return p.A.EP.TagSendSync(1, nil, params) },
			func() (*ucp.Request, error) {
				return p.A.EP.TagSendData(1, ucp.Buffers(pieces(make([]byte, 9))), params)
			},
			func() (*ucp.Request, error) { return p.A.EP.SendActive(1, nil, nil, params) },
			func() (*ucp.Request, error) { return p.A.EP.StreamSend([]byte{1}, params) },
			func() (*ucp.Request, error) { return p.A.EP.Put([]byte{1}, p.A.Key.Addr(), p.A.Key, params) },
			func() (*ucp.Request, error) { return p.A.EP.Get(make([]byte, 1), p.A.Key.Addr(), p.A.Key, params) },
			func() (*ucp.Request, error) { return p.B.W.TagRecv(nil, 1, exact, nil, params) },
			func() (*ucp.Request, error) { return p.B.W.TagRecvData(list, 1, exact, nil, params) },
			func() (*ucp.Request, error) { return tagged.Recv(make([]byte, 1), nil, params) },
			func() (*ucp.Request, error) { return active.Recv(make([]byte, 1), params) },
			func() (*ucp.Request, error) { return active.RecvData(list, params) },
			func() (*ucp.Request, error) { return p.A.EP.StreamSend(nil, params) },
			func() (*ucp.Request, error) { return p.A.EP.StreamSendData(list, params) },
			func() (*ucp.Request, error) { return p.A.EP.StreamRecv(make([]byte, 1), true, &n, params) },
			func() (*ucp.Request, error) { return p.A.EP.StreamRecvData(list, true, &n, params) },
			func() (*ucp.Request, error) {
				return nil, p.A.EP.GetWait(ctx, make([]byte, 1), p.A.Key.Addr(), p.A.Key, params)
			},
		} {
			r, err := op()
			assert.Nil(t, r, "%d", i)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d: %#x", i, f)
		}
	}
	require.NoError(t, p.Finish(tagged.Recv(make([]byte, 1), nil, nil)), "the message was not received")
	require.NoError(t, p.Finish(active.Recv(make([]byte, 1), nil)))
	active.Release()
	for _, f := range []ucp.OpFlags{ucp.SendEager, ucp.CompleteLater, ucp.CompleteNow, ucp.PreferThroughput} {
		params, transfer := &ucp.OpParams{Flags: f}, []ucp.Transfer{{[]byte{1}, p.A.Key.Addr(), p.A.Key}}
		for i, op := range []func() (*ucp.Request, error){
			func() (*ucp.Request, error) { return p.A.EP.PutNotify([]byte{1}, p.A.Key.Addr(), p.A.Key, 1, params) },
			func() (*ucp.Request, error) { return p.A.EP.PutList(transfer, params) },
			func() (*ucp.Request, error) { return p.A.EP.GetList(transfer, params) },
		} {
			r, err := op()
			assert.Nil(t, r, "%d", i)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d: %#x", i, f)
		}
	}
}

// TestOpFlags_Preferences: a preference moves the length from which messages use rendezvous.
func TestOpFlags_Preferences(t *testing.T) {
	p := ucppair.Open(t, tlsets.Real("sm", "sm"), ucp.Config{}).Both().Warm()
	mem := p.A.Mem
	from, overlapped := p.A.EP.AnnouncedFrom(mem).From, p.A.EP.OverlappedFrom(mem).From
	require.Less(t, overlapped, from, "messages in flight together")
	assert.True(t, usesRndv(t, p, from, &ucp.OpParams{Mem: p.A.Mem}))
	assert.False(t, usesRndv(t, p, from, &ucp.OpParams{Mem: p.A.Mem, Flags: ucp.PreferFastCompletion}))
	assert.True(t, usesRndv(t, p, overlapped, &ucp.OpParams{Mem: p.A.Mem, Flags: ucp.PreferThroughput}))
	assert.False(t, usesRndv(t, p, overlapped-1, &ucp.OpParams{Mem: p.A.Mem, Flags: ucp.PreferThroughput}))
	assert.False(t, usesRndv(t, p, overlapped, &ucp.OpParams{Mem: p.A.Mem}))
}

// TestOpFlags_FastPut: with PreferFastCompletion a put from registered memory returns the buffer in the call.
func TestOpFlags_FastPut(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		n := p.A.EP.PutBcopyLen()
		if n = min(n, tlsets.MemLen); n == 0 {
			t.Skip("the transport copies no puts")
		}
		local := p.A.Mem.Bytes()[:n]
		copy(local, testenv.Pattern(n, 8))
		r, err := p.A.EP.Put(local, p.A.Key.Addr(), p.A.Key, &ucp.OpParams{Mem: p.A.Mem, Flags: ucp.PreferFastCompletion})
		require.NoError(t, err)
		require.Nil(t, r, "the lane has resources")
		clear(local)
		require.NoError(t, p.Flush())
		testenv.RequireBytes(t, testenv.Pattern(n, 8), p.B.Mem.Bytes()[:n])
	})
}
