package ucp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/handshake"
	"github.com/gucx/gucx/ucp/internal/region"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// flagLen is the length of messages that use rendezvous without flags, in bytes. It is less than half of a window.
const flagLen = tlsets.RndvThresh + 1000

// TestOpFlags_Eager: with SendEager the send completes without a receive, and without the flag it does not.
func TestOpFlags_Eager(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		data, buf := pattern(flagLen, 1), make([]byte, flagLen)
		require.NoError(t, p.finish(p.a.ep.TagSend(1, data, &OpParams{Flags: SendEager})))
		require.NoError(t, p.finish(p.a.ep.TagSendData(2, Buffers(pieces(data)), &OpParams{Flags: SendEager})))
		p.unexpected(2)
		for m := range p.b.w.tag.table.Messages() {
			assert.Nil(t, m.Owner.rndv)
		}
		later, err := p.a.ep.TagSend(3, data, nil)
		require.NoError(t, err)
		p.unexpected(3)
		assert.False(t, later.Done(), "without the flag")
		for tag := range uint64(3) {
			clear(buf)
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, tag+1, exact, nil, nil)))
			requireBytes(t, data, buf)
		}
		require.NoError(t, p.finish(later, nil))
	})
}

// TestOpFlags_EagerWithoutCredit: eager messages of a sender without credit wait, and arrive in order. A message above
// half of the window, which would need all credit, uses rendezvous.
func TestOpFlags_EagerWithoutCredit(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		data, buf := pattern(flagLen, 2), make([]byte, flagLen)
		var sent []*Request
		for p.a.ep.msgs.Credit >= charge(flagLen) {
			require.NoError(t, p.finish(p.a.ep.TagSend(uint64(len(sent)), data, &OpParams{Flags: SendEager})))
			sent = append(sent, nil)
		}
		eager := len(sent)
		r, err := p.a.ep.TagSend(uint64(eager), data, &OpParams{Flags: SendEager})
		require.NoError(t, err)
		require.NotNil(t, r)
		assert.False(t, r.stage.announces)
		long := pattern(int(p.a.ep.msgs.Most), 3)
		last, err := p.a.ep.TagSend(uint64(eager+1), long, &OpParams{Flags: SendEager})
		require.NoError(t, err)
		require.NotNil(t, last)
		for tag := range uint64(eager + 1) {
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, tag, exact, nil, nil)))
			requireBytes(t, data, buf)
		}
		require.NoError(t, p.finish(r, nil))
		buf = make([]byte, len(long))
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, uint64(eager+1), exact, nil, nil)))
		requireBytes(t, long, buf)
		require.NoError(t, p.finish(last, nil))
	})
}

// TestOpFlags_Rendezvous: with SendRendezvous the data of a small message remains at the sender.
func TestOpFlags_Rendezvous(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		for _, n := range []int{0, 8, 500} {
			data, buf := pattern(n, n), make([]byte, n)
			r, err := p.a.ep.TagSend(1, data, &OpParams{Flags: SendRendezvous})
			require.NoError(t, err)
			p.unexpected(1)
			assert.False(t, r.Done())
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, 1, exact, nil, nil)))
			requireBytes(t, data, buf)
			require.NoError(t, p.finish(r, nil))

			var kept *ActiveMessage
			p.b.w.OnActive(5, func(m *ActiveMessage) {
				assert.Nil(t, m.Data)
				kept = m.Keep()
			})
			r, err = p.a.ep.SendActive(5, []byte("head"), data, &OpParams{Flags: SendRendezvous})
			require.NoError(t, err)
			p.until(func() bool { return kept != nil })
			assert.False(t, r.Done())
			assert.Equal(t, "head", string(kept.Header))
			clear(buf)
			require.NoError(t, p.finish(kept.Recv(buf, nil)))
			kept.Release()
			requireBytes(t, data, buf)
			require.NoError(t, p.finish(r, nil))
		}
	})
}

// TestOpFlags_Later: every operation has a request with CompleteLater, and Progress reports it once.
func TestOpFlags_Later(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.both().warm()
		reported, called, done := 0, 0, false
		params := &OpParams{Flags: CompleteLater, OnDone: func(err error) {
			assert.NoError(t, err)
			assert.True(t, done, "after the call has returned")
			reported++
		}}
		var active *ActiveMessage
		streamEnd := p.b.ep
		if p.oneself() {
			streamEnd = p.a.ep
		}
		p.b.w.OnActive(6, func(m *ActiveMessage) { active = m.Keep() })
		small, n := []byte("12345678"), 0
		for _, op := range []struct {
			name string
			do   func() (*Request, error)
		}{
			{"tag send", func() (*Request, error) { return p.a.ep.TagSend(1, small, params) }},
			{"tag receive", func() (*Request, error) {
				p.unexpected(1)
				return p.b.w.TagRecv(make([]byte, 8), 1, exact, nil, params)
			}},
			{"tag send of a list", func() (*Request, error) { return p.a.ep.TagSendData(2, Buffers(pieces(small)), params) }},
			{"tag receive of a list", func() (*Request, error) {
				p.unexpected(1)
				return p.b.w.TagRecvData(Buffers(pieces(make([]byte, 8))), 2, exact, nil, params)
			}},
			{"posted receive", func() (*Request, error) { return p.b.w.TagRecv(make([]byte, 8), 3, exact, nil, params) }},
			{"its send", func() (*Request, error) { return p.a.ep.TagSend(3, small, params) }},
			{"active message", func() (*Request, error) { return p.a.ep.SendActive(6, nil, small, params) }},
			{"its receive", func() (*Request, error) {
				p.until(func() bool { return active != nil })
				return active.Recv(make([]byte, 8), params)
			}},
			{"stream send", func() (*Request, error) { return p.a.ep.StreamSend(small, params) }},
			{"stream receive", func() (*Request, error) {
				p.until(func() bool { m := streamEnd.msgs; return m != nil && m.stream != nil && m.stream.unread.first != nil })
				return streamEnd.StreamRecv(make([]byte, 8), true, &n, params)
			}},
			{"put", func() (*Request, error) { return p.a.ep.Put(small, p.a.key.Addr(), p.a.key, params) }},
			{"put of nothing", func() (*Request, error) { return p.a.ep.Put(nil, p.a.key.Addr(), p.a.key, params) }},
			{"get", func() (*Request, error) { return p.a.ep.Get(make([]byte, 8), p.a.key.Addr(), p.a.key, params) }},
			{"send to a probe", func() (*Request, error) { return p.a.ep.TagSend(4, small, params) }},
			{"receive after a probe", func() (*Request, error) {
				p.unexpected(1)
				m, _, _ := p.b.w.TagProbe(4, exact, true)
				return m.Recv(make([]byte, 8), nil, params)
			}},
			{"stream send of nothing", func() (*Request, error) { return p.a.ep.StreamSend(nil, params) }},
			{"second stream send", func() (*Request, error) { return p.a.ep.StreamSend(small, params) }},
			{"stream receive into a list", func() (*Request, error) {
				p.until(func() bool { return streamEnd.msgs.stream.unread.first != nil })
				return streamEnd.StreamRecvData(Buffers(pieces(make([]byte, 8))), true, &n, params)
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
				p.until(func() bool { return reported == called })
			}
		}
		active.Release()
		require.NoError(t, p.flush())
		assert.Equal(t, called, reported)
	})
}

// TestOpFlags_LaterRendezvous: a receive of a rendezvous active message returns a request with CompleteLater, also if a
// mapping of the memory of the sender completes it in the call.
func TestOpFlags_LaterRendezvous(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.both().grown().warm()
		from, to := p.a.memOf(t, flagLen), p.b.memOf(t, flagLen)
		copy(from.Bytes(), pattern(flagLen, 4))
		var active *ActiveMessage
		p.b.w.OnActive(6, func(m *ActiveMessage) { active = m.Keep() })
		for i := range 4 { // the first receives connect lanes
			reported, recv := 0, (*Request)(nil)
			sent, err := p.a.ep.SendActive(6, nil, from.Bytes(), &OpParams{Mem: from, Flags: SendRendezvous})
			require.NoError(t, err)
			p.until(func() bool { return active != nil })
			clear(to.Bytes())
			params := &OpParams{Mem: to, Flags: CompleteLater, OnDone: func(err error) {
				assert.NoError(t, err)
				reported++
			}}
			if i%2 == 0 {
				recv, err = active.Recv(to.Bytes(), params)
			} else {
				recv, err = active.RecvData(Buffers(pieces(to.Bytes())), &OpParams{Flags: CompleteLater, OnDone: params.OnDone})
			}
			require.NoError(t, err)
			require.NotNil(t, recv)
			assert.Zero(t, reported)
			p.until(func() bool { return reported == 1 })
			require.NoError(t, p.finish(recv, nil))
			requireBytes(t, from.Bytes(), to.Bytes())
			active.Release()
			active = nil
			require.NoError(t, p.finish(sent, nil))
		}
	})
}

// TestOpFlags_NowConnects: an operation with CompleteNow fails until the EP is connected, connects it, and then
// takes effect once.
func TestOpFlags_NowConnects(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		now := &OpParams{Flags: CompleteNow}
		refused := 0
		p.until(func() bool {
			r, err := p.a.ep.TagSend(1, []byte("now"), now)
			require.Nil(t, r)
			if err != nil {
				require.True(t, err == ucs.ErrNoResource, "%v", err)
				refused++
			}
			return err == nil
		})
		assert.Positive(t, refused)
		buf := make([]byte, 10)
		info := &TagInfo{}
		p.until(func() bool {
			r, err := p.b.w.TagRecv(buf, 1, exact, info, now)
			require.Nil(t, r)
			require.True(t, err == nil || err == ucs.ErrNoResource, "%v", err)
			return err == nil
		})
		assert.Equal(t, "now", string(buf[:info.Length]))
		require.NoError(t, p.flush())
		_, err := p.b.w.TagRecv(buf, 1, exact, info, now)
		assert.True(t, err == ucs.ErrNoResource, "the first message was sent")
		p.until(func() bool {
			_, err = p.a.ep.Put([]byte("put"), p.a.key.Addr(), p.a.key, now)
			return err != ucs.ErrNoResource
		})
		require.NoError(t, err)
		require.NoError(t, p.flush())
		assert.Equal(t, "put", string(p.b.mem.Bytes()[:3]))
	})
}

// TestOpFlags_NowWithoutEffect: an operation that cannot complete in the call has no effect.
func TestOpFlags_NowWithoutEffect(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown().warm()
		now := &OpParams{Flags: CompleteNow}
		refused := func(what string, r *Request, err error) {
			t.Helper()
			assert.Nil(t, r, what)
			assert.True(t, err == ucs.ErrNoResource, "%s: %v", what, err)
		}
		r, err := p.a.ep.TagSend(1, make([]byte, flagLen*4), now)
		refused("too long", r, err)
		r, err = p.a.ep.TagSendSync(1, []byte{1}, now)
		refused("synchronous", r, err)
		r, err = p.a.ep.TagSend(1, []byte{1}, &OpParams{Flags: CompleteNow | SendRendezvous})
		refused("rendezvous", r, err)
		r, err = p.a.ep.StreamSend(make([]byte, flagLen*4), now)
		refused("stream", r, err)
		waits, err := p.a.ep.TagSend(2, make([]byte, flagLen), &OpParams{Flags: SendRendezvous})
		require.NoError(t, err)
		p.unexpected(1)
		r, err = p.b.w.TagRecv(make([]byte, flagLen), 2, exact, nil, now)
		refused("receive of a rendezvous message", r, err)
		require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, flagLen), 2, exact, nil, nil)))
		require.NoError(t, p.finish(waits, nil))

		buf := make([]byte, 1)
		r, err = p.a.ep.Get(buf, p.a.key.Addr(), p.a.key, now)
		refused("get", r, err)
		if _, err := p.a.key.Slice(); err == nil {
			p.b.mem.Bytes()[0] = 17
			r, err = p.a.ep.Get(buf, p.a.key.Addr(), p.a.key, now)
			require.NoError(t, err)
			assert.Nil(t, r)
			assert.Equal(t, byte(17), buf[0])
		}
		require.NoError(t, p.flush())
		assert.Zero(t, p.b.w.tag.table.Unexpected(), "nothing was sent")
	})
}

// TestOpFlags_NowWithoutCredit: a sender that never waits sends as much as its credit permits, in order.
func TestOpFlags_NowWithoutCredit(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.grown()
		n, data := 0, pattern(1000, 5)
		for err := error(nil); ; {
			data[0] = byte(n)
			if _, err = p.a.ep.TagSend(7, data, &OpParams{Flags: CompleteNow}); err == nil {
				n++
				continue
			}
			require.True(t, err == ucs.ErrNoResource, "%v", err)
			if p.a.ep.msgs.Credit < charge(len(data)) {
				break
			}
			p.step() // a queue of the transport was full
		}
		require.Positive(t, n)
		p.unexpected(n)
		buf := make([]byte, len(data))
		for i := range n {
			_, err := p.b.w.TagRecv(buf, 7, exact, nil, &OpParams{Flags: CompleteNow})
			require.NoError(t, err)
			require.Equal(t, byte(i), buf[0])
		}
	})
}

// TestOpFlags_NowWithoutResources: sends on a full lane queue nothing, and OnDone is not called.
func TestOpFlags_NowWithoutResources(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeSM())
	p.grown().warm()
	from, to := p.streamed()
	now := &OpParams{Flags: CompleteNow, OnDone: func(err error) { t.Errorf("OnDone(%v) of a call without a request", err) }}
	sends := []func(data []byte) (*Request, error){
		func(data []byte) (*Request, error) { return from.TagSend(1, data, now) },
		func(data []byte) (*Request, error) { return from.TagSendData(2, Buffers(pieces(data)), now) },
		func(data []byte) (*Request, error) { return from.SendActive(3, nil, data, now) },
		func(data []byte) (*Request, error) { return from.StreamSend(data, now) },
		func(data []byte) (*Request, error) { return from.StreamSendData(Buffers(pieces(data)), now) },
		func(data []byte) (*Request, error) { return from.Put(data, p.a.key.Addr(), p.a.key, now) },
	}
	got := 0
	p.b.w.OnActive(3, func(*ActiveMessage) { got++ })
	credit, made, waits := from.msgs.Credit, p.a.w.pool.made, p.a.w.stats.waitsResource.Load()
	f.IfaceOf(0, 0).Stuck = true
	for range 10 * chunk {
		for i, send := range sends {
			r, err := send([]byte("12345678"))
			require.Nil(t, r, i)
			require.True(t, err == ucs.ErrNoResource, "%d: %v", i, err)
		}
	}
	assert.Equal(t, credit, from.msgs.Credit)
	assert.Equal(t, made, p.a.w.pool.made, "requests are recycled")
	assert.Equal(t, waits, p.a.w.stats.waitsResource.Load())
	assert.False(t, from.busy())
	f.IfaceOf(0, 0).Stuck = false
	p.idle()
	assert.Zero(t, got)
	for i, send := range sends {
		r, err := send([]byte("12345678"))
		require.NoError(t, err, i)
		require.Nil(t, r, i)
		p.idle()
	}
	p.unexpected(2)
	assert.Equal(t, 1, got)
	requireBytes(t, []byte("1234567812345678"), p.read(to, 16))
}

// TestOpFlags_NowWithoutLane: an EP that has lost the lanes of messages returns the reason.
func TestOpFlags_NowWithoutLane(t *testing.T) {
	p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{}).grown().warm()
	l := p.a.ep.link
	l.lanes.Use[wireup.AM], l.lost.roles, l.lost.why = nil, handshake.Set(wireup.AM), ucs.ErrTimedOut
	p.a.ep.msgs.unbind()
	_, err := p.a.ep.TagSend(1, nil, &OpParams{Flags: CompleteNow})
	assert.ErrorIs(t, err, ucs.ErrTimedOut)
}

// TestOpFlags_NowIgnores: SendRendezvous has no effect on streams, and an empty put needs no lane.
func TestOpFlags_NowIgnores(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		r, err := p.a.ep.Put(nil, p.a.key.Addr(), p.a.key, &OpParams{Flags: CompleteNow})
		assert.NoError(t, err, "not connected")
		assert.Nil(t, r)
		from, to := p.streamed()
		p.until(func() bool {
			r, err = from.StreamSend([]byte("stream"), &OpParams{Flags: CompleteNow | SendRendezvous})
			require.Nil(t, r)
			return err != ucs.ErrNoResource
		})
		require.NoError(t, err)
		requireBytes(t, []byte("stream"), p.read(to, 6))
	})
}

// TestOpFlags_NowRegistersNothing: a rejected get leaves no registration of its buffer in use.
func TestOpFlags_NowRegistersNothing(t *testing.T) {
	for _, set := range registerSets()[1:] {
		set.Run(t, func(t *testing.T) {
			p := newPair(t, set, Config{}).connect().warm()
			mem := p.b.memOf(t, registerLen)
			key, err := p.a.ep.Unpack(mem.Pack())
			require.NoError(t, err)
			defer key.Close()
			r, err := p.a.ep.Get(make([]byte, registerLen), mem.Addr(), key, &OpParams{Flags: CompleteNow})
			assert.Nil(t, r)
			assert.True(t, err == ucs.ErrNoResource, "%v", err)
			assert.Zero(t, p.a.registrations())
		})
	}
}

// TestOpFlags_Implicit: implicit operations ignore flags.
func TestOpFlags_Implicit(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		for _, n := range []int{8, memLen} {
			params := &OpParams{Flags: CompleteNow | CompleteLater, Mem: p.a.mem}
			for range 2 { // before and after it has connected
				local, remote := p.a.mem.Bytes()[:n], p.b.mem.Bytes()[:n]
				copy(local, pattern(n, n))
				require.NoError(t, p.a.ep.PutImplicit(local, p.a.key.Addr(), p.a.key, params))
				require.NoError(t, p.flush())
				requireBytes(t, pattern(n, n), remote)
				clear(local)
				require.NoError(t, p.a.ep.GetImplicit(local, p.a.key.Addr(), p.a.key, params))
				require.NoError(t, p.flush())
				requireBytes(t, pattern(n, n), local)
			}
		}
	})
}

// TestOpFlags_Wrong: all operations reject flags that contradict each other.
func TestOpFlags_Wrong(t *testing.T) {
	p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{}).both().warm()
	var active *ActiveMessage
	p.b.w.OnActive(2, func(m *ActiveMessage) { active = m.Keep() })
	require.NoError(t, p.finish(p.a.ep.TagSend(2, []byte{1}, nil)))
	require.NoError(t, p.finish(p.a.ep.SendActive(2, nil, []byte{1}, nil)))
	p.unexpected(1)
	p.until(func() bool { return active != nil })
	tagged, _, _ := p.b.w.TagProbe(2, exact, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, list := 0, Buffers(pieces(make([]byte, 9)))
	for _, f := range append(flagGroups[:], allOpFlags+1) {
		params := &OpParams{Flags: f}
		for i, op := range []func() (*Request, error){
			func() (*Request, error) { return p.a.ep.TagSend(1, nil, params) },
			func() (*Request, error) { return p.a.ep.TagSendSync(1, nil, params) },
			func() (*Request, error) { return p.a.ep.TagSendData(1, Buffers(pieces(make([]byte, 9))), params) },
			func() (*Request, error) { return p.a.ep.SendActive(1, nil, nil, params) },
			func() (*Request, error) { return p.a.ep.StreamSend([]byte{1}, params) },
			func() (*Request, error) { return p.a.ep.Put([]byte{1}, p.a.key.Addr(), p.a.key, params) },
			func() (*Request, error) { return p.a.ep.Get(make([]byte, 1), p.a.key.Addr(), p.a.key, params) },
			func() (*Request, error) { return p.b.w.TagRecv(nil, 1, exact, nil, params) },
			func() (*Request, error) { return p.b.w.TagRecvData(list, 1, exact, nil, params) },
			func() (*Request, error) { return tagged.Recv(make([]byte, 1), nil, params) },
			func() (*Request, error) { return active.Recv(make([]byte, 1), params) },
			func() (*Request, error) { return active.RecvData(list, params) },
			func() (*Request, error) { return p.a.ep.StreamSend(nil, params) },
			func() (*Request, error) { return p.a.ep.StreamSendData(list, params) },
			func() (*Request, error) { return p.a.ep.StreamRecv(make([]byte, 1), true, &n, params) },
			func() (*Request, error) { return p.a.ep.StreamRecvData(list, true, &n, params) },
			func() (*Request, error) {
				return nil, p.a.ep.GetWait(ctx, make([]byte, 1), p.a.key.Addr(), p.a.key, params)
			},
		} {
			r, err := op()
			assert.Nil(t, r, "%d", i)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d: %#x", i, f)
		}
	}
	require.NoError(t, p.finish(tagged.Recv(make([]byte, 1), nil, nil)), "the message was not received")
	require.NoError(t, p.finish(active.Recv(make([]byte, 1), nil)))
	active.Release()
	for _, f := range []OpFlags{SendEager, CompleteLater, CompleteNow, PreferThroughput} {
		params, transfer := &OpParams{Flags: f}, []Transfer{{[]byte{1}, p.a.key.Addr(), p.a.key}}
		for i, op := range []func() (*Request, error){
			func() (*Request, error) { return p.a.ep.PutNotify([]byte{1}, p.a.key.Addr(), p.a.key, 1, params) },
			func() (*Request, error) { return p.a.ep.PutList(transfer, params) },
			func() (*Request, error) { return p.a.ep.GetList(transfer, params) },
		} {
			r, err := op()
			assert.Nil(t, r, "%d", i)
			assert.ErrorIs(t, err, ucs.ErrInvalidParam, "%d: %#x", i, f)
		}
	}
}

// TestOpFlags_Preferences: a preference moves the length from which messages use rendezvous.
func TestOpFlags_Preferences(t *testing.T) {
	p := openPair(t, tlsets.Real("sm", "sm"), Config{}).both().warm()
	mem := (*region.Mem)(p.a.mem)
	from, overlapped := p.a.ep.announcedFrom(mem).From, p.a.ep.overlappedFrom(mem).From
	require.Less(t, overlapped, from, "messages in flight together")
	assert.True(t, p.announces(t, from, &OpParams{Mem: p.a.mem}))
	assert.False(t, p.announces(t, from, &OpParams{Mem: p.a.mem, Flags: PreferFastCompletion}))
	assert.True(t, p.announces(t, overlapped, &OpParams{Mem: p.a.mem, Flags: PreferThroughput}))
	assert.False(t, p.announces(t, overlapped-1, &OpParams{Mem: p.a.mem, Flags: PreferThroughput}))
	assert.False(t, p.announces(t, overlapped, &OpParams{Mem: p.a.mem}))
}

// TestOpFlags_FastPut: with PreferFastCompletion a put from registered memory returns the buffer in the call.
func TestOpFlags_FastPut(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		n := p.a.ep.transport(putStage.role).attr.Put.MaxBcopy
		if n = min(n, memLen); n == 0 {
			t.Skip("the transport copies no puts")
		}
		local := p.a.mem.Bytes()[:n]
		copy(local, pattern(n, 8))
		r, err := p.a.ep.Put(local, p.a.key.Addr(), p.a.key, &OpParams{Mem: p.a.mem, Flags: PreferFastCompletion})
		require.NoError(t, err)
		require.Nil(t, r, "the lane has resources")
		clear(local)
		require.NoError(t, p.flush())
		requireBytes(t, pattern(n, 8), p.b.mem.Bytes()[:n])
	})
}
