package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// TestTraffic: both sides count the same bytes, by class of EP, including closed EPs.
func TestTraffic(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		if p.oneself() {
			return
		}
		const n, size = 25, 100 // less than the first window, so that no message waits for credit and uses rendezvous
		require.LessOrEqual(t, n*(size+messageCharge), firstWindow)
		buf := make([]byte, size)
		for k := range n {
			send, err := p.a.ep.TagSend(7, pattern(size, k), nil)
			require.NoError(t, err)
			require.NoError(t, p.finish(p.b.w.TagRecv(buf, 7, 0, nil, nil)))
			require.NoError(t, p.finish(send, nil))
		}
		p.a.w.countTraffic()
		p.b.w.countTraffic()
		a, b := counters(p.a.w), counters(p.b.w)
		assert.EqualValues(t, n*(size+messageCharge), a["worker/ep@made.sent_bytes"])
		assert.EqualValues(t, n*(size+messageCharge), b["worker/ep@accepted.received_bytes"])
		assert.EqualValues(t, 1, a["worker/ep@made.connected"])
		assert.EqualValues(t, 1, b["worker/ep@accepted.connected"])
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		p.until(func() bool { return counters(p.b.w)["worker/ep@accepted.closed"] == 1 })
		p.until(func() bool { return counters(p.a.w)["worker/ep@made.closed"] == 1 })
		p.a.w.countTraffic()
		assert.EqualValues(t, n*(size+messageCharge), counters(p.a.w)["worker/ep@made.sent_bytes"])
	})
}

// TestTraffic_Credits: each credit message is counted by both sides.
func TestTraffic_Credits(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	const size = firstWindow / 8
	buf := make([]byte, size)
	for k := range 200 {
		send, err := p.a.ep.TagSend(7, pattern(size, k), nil)
		require.NoError(t, err)
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, 7, 0, nil, nil)))
		require.NoError(t, p.finish(send, nil))
	}
	p.until(func() bool { // the latest one arrives
		n := counters(p.a.w)["worker/ep@made.credits_received"]
		return n > 1 && n == counters(p.b.w)["worker/ep@accepted.credits_sent"]
	})
}

// TestTraffic_Transports: both sides count the same messages of transports that count what they receive. Closed connections
// remain in the counts.
func TestTraffic_Transports(t *testing.T) {
	for _, tc := range []struct{ tls, sent, received string }{
		{"sm", "sm@memory.messages_sent", "sm@memory.messages_received"},
		{"tcp", "tcp@lo.requests_sent", "tcp@lo.requests_received"},
		{`\rc`, "rc@softhca0:1.work_requests", ""},
		{"rc_mlx5", "rc_mlx5@softhca0:1.work_requests", ""},
	} {
		t.Run(tc.tls, func(t *testing.T) {
			p := newPair(t, tlsets.Real(tc.tls, tc.tls), Config{}).both().warm()
			const n = 50
			for k := range n {
				send, err := p.a.ep.TagSend(7, pattern(100, k), nil)
				require.NoError(t, err)
				require.NoError(t, p.finish(p.b.w.TagRecv(make([]byte, 100), 7, 0, nil, nil)))
				require.NoError(t, p.finish(send, nil)) // without credit it waits for the receive
			}
			count := func(x *end, name string) uint64 {
				x.w.countTraffic()
				return counters(x.w)["worker/"+name]
			}
			require.GreaterOrEqual(t, count(&p.a, tc.sent), uint64(n))
			p.until(func() bool { // the latest credit arrives
				return count(&p.a, tc.sent) == count(&p.b, tc.received) && count(&p.b, tc.sent) == count(&p.a, tc.received) || tc.received == ""
			})
			before := count(&p.a, tc.sent)
			require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
			p.until(func() bool { return counters(p.a.w)["worker/ep@made.closed"] == 1 })
			assert.GreaterOrEqual(t, count(&p.a, tc.sent), before)
			require.NoError(t, p.a.w.Close())
			assert.GreaterOrEqual(t, counters(p.a.w)["worker/"+tc.sent], before)
		})
	}
}

// TestTraffic_Adopted: an EP that the peer has made remains in its class when NewEP returns it.
func TestTraffic_Adopted(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).connect().warm()
	require.NoError(t, p.finish(p.a.ep.TagSend(7, nil, nil)))
	require.NoError(t, p.finish(p.b.w.TagRecv(nil, 7, 0, nil, nil)))
	ep, err := p.b.w.NewEP(p.a.w.Address(), EPConfig{})
	require.NoError(t, err)
	require.True(t, ep.Info().ByPeer)
	require.NoError(t, p.finish(ep.Close(CloseFlush)))
	p.until(func() bool { return counters(p.b.w)["worker/ep@accepted.closed"] == 1 })
	all := counters(p.b.w)
	assert.EqualValues(t, 1, all["worker/ep@accepted.connected"])
	assert.Zero(t, all["worker/ep@made.closed"])
}

// TestStats_GracefulClose: a peer that closes its worker does not count as a failure.
func TestStats_GracefulClose(t *testing.T) {
	for _, tls := range []string{"sm", "tcp", "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			p := newPair(t, tlsets.Real(tls, tls), Config{}).both().warm()
			require.NoError(t, p.b.w.Close())
			p.until(func() bool { return p.a.ep.Err() != nil })
			require.ErrorIs(t, p.a.ep.Err(), ucs.ErrPeerClosed)
			all := counters(p.a.w)
			for _, name := range []string{"broken_lanes", "replaced_lanes", "failed_eps", "bad_messages"} {
				assert.Zero(t, all["worker."+name], name)
			}
			assert.EqualValues(t, 1, all["worker.left_peers"])
		})
	}
}

// TestStats_Waits: messages that wait for credit, and messages with rendezvous, are counted once.
func TestStats_Waits(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).both().warm()
	p.b.w.OnActive(1, func(m *ActiveMessage) {
		if m.Data == nil {
			r, err := m.Recv(make([]byte, m.Length), nil)
			require.NoError(t, err)
			if r != nil {
				r.Release()
			}
		}
	})
	var sends []*Request
	for range 3000 {
		r, err := p.a.ep.SendActive(1, nil, make([]byte, 64), nil)
		require.NoError(t, err)
		if r != nil {
			sends = append(sends, r)
		}
	}
	require.NotEmpty(t, sends)
	for _, r := range sends {
		require.NoError(t, p.finish(r, nil))
	}
	p.a.w.countTraffic()
	p.b.w.countTraffic()
	all := counters(p.a.w)
	assert.Equal(t, all["worker.waits_for_credit"], all["worker/ep@made.waits_for_credit"])
	assert.Zero(t, all["worker/ep@accepted.waits_for_credit"])
	assert.Positive(t, all["worker.waits_for_credit"])
	assert.Positive(t, all["worker.announced_messages"], "messages without credit use rendezvous")
	assert.Equal(t, all["worker.announced_messages"], counters(p.b.w)["worker.fetched_by_get"]+counters(p.b.w)["worker.fetched_by_put"]+counters(p.b.w)["worker.fetched_by_copies"])
}

// TestStats_Dials: each call of Dial is counted by its result.
func TestStats_Dials(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	l := p.b.listen(t, "unix", "@"+t.Name(), ListenConfig{Accept: func(r *ConnRequest) bool { return string(r.Private) == "friend" }})
	for _, private := range []string{"friend", "foe"} {
		_, _ = p.a.w.dial(t.Context(), "unix", l.Addr().String(), &DialConfig{Private: []byte(private)}, p.within)
	}
	_, _ = p.a.w.dial(t.Context(), "unix", "@nothing listens here", &DialConfig{}, p.within)
	all := counters(p.a.w)
	for _, name := range []string{"connected", "rejected_program", "failed"} {
		assert.EqualValues(t, 1, all["worker/dial."+name], name)
	}
}

// TestSnapshot: any goroutine may read derived counters.
func TestSnapshot(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{}).both().warm()
	require.NoError(t, p.finish(p.a.ep.TagSend(7, pattern(100, 1), nil)))
	serving(t, p.a.w)
	s, err := p.a.w.Snapshot(t.Context())
	require.NoError(t, err)
	found := false
	for path, n := range s.All() {
		if path == "worker/ep@made.sent_bytes" {
			found = n == 100+messageCharge
		}
	}
	assert.True(t, found, "%v", s)
}
