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
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
)

// TestTraffic: both sides count the same bytes, by class of EP, including closed EPs.
func TestTraffic(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		if p.Oneself() {
			return
		}
		const n, size = 25, 100 // less than the first window, so that no message waits for credit and uses rendezvous
		require.LessOrEqual(t, n*(size+window.MessageCharge), ucp.FirstWindow)
		buf := make([]byte, size)
		for k := range n {
			send, err := p.A.EP.TagSend(7, testenv.Pattern(size, k), nil)
			require.NoError(t, err)
			require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, 0, nil, nil)))
			require.NoError(t, p.Finish(send, nil))
		}
		p.A.W.CountTraffic()
		p.B.W.CountTraffic()
		a, b := counters(p.A.W), counters(p.B.W)
		assert.EqualValues(t, n*(size+window.MessageCharge), a["worker/ep@made.sent_bytes"])
		assert.EqualValues(t, n*(size+window.MessageCharge), b["worker/ep@accepted.received_bytes"])
		assert.EqualValues(t, 1, a["worker/ep@made.connected"])
		assert.EqualValues(t, 1, b["worker/ep@accepted.connected"])
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return counters(p.B.W)["worker/ep@accepted.closed"] == 1 })
		p.Until(func() bool { return counters(p.A.W)["worker/ep@made.closed"] == 1 })
		p.A.W.CountTraffic()
		assert.EqualValues(t, n*(size+window.MessageCharge), counters(p.A.W)["worker/ep@made.sent_bytes"])
	})
}

// TestTraffic_Credits: each credit message is counted by both sides.
func TestTraffic_Credits(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect().Warm()
	const size = ucp.FirstWindow / 8
	buf := make([]byte, size)
	for k := range 200 {
		send, err := p.A.EP.TagSend(7, testenv.Pattern(size, k), nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 7, 0, nil, nil)))
		require.NoError(t, p.Finish(send, nil))
	}
	p.Until(func() bool { // the latest one arrives
		n := counters(p.A.W)["worker/ep@made.credits_received"]
		return n > 1 && n == counters(p.B.W)["worker/ep@accepted.credits_sent"]
	})
}

// TestTraffic_CreditAfterReply: if messages are system calls, credit is granted by the Progress after the one that receives the
// message, so that the program can reply first.
func TestTraffic_CreditAfterReply(t *testing.T) {
	for _, writes := range []bool{false, true} {
		f := faketp.New(faketp.LikeSM())
		f.NeedsPush = writes
		set := tlsets.Set{Name: "fake", Open: func(testing.TB) (a, b []uct.Component) { return []uct.Component{f}, []uct.Component{f} }}
		p := ucppair.New(t, set, ucp.Config{RndvThresh: config.MemInf, EagerWindow: ucp.FirstWindow}).Both().Warm()
		const size = ucp.FirstWindow * 3 / 4 // more than a batch of credit
		granted := func() uint64 {
			p.B.W.CountTraffic()
			n := counters(p.B.W)
			return n["worker/ep@accepted.credits_sent"] + n["worker/ep@made.credits_sent"]
		}
		for k := range 3 {
			received, err := p.B.W.TagRecv(make([]byte, size), 7, 0, nil, nil)
			require.NoError(t, err)
			before := granted()
			sent, err := p.A.EP.TagSend(7, make([]byte, size), nil)
			require.NoError(t, err)
			testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
				p.A.W.Progress()
				p.B.W.Progress()
				return received.Done()
			})
			received.Release()
			if k > 0 { // the first credit opens the lane
				require.Equal(t, !writes, granted() == before+1)
				p.B.W.Progress()
				require.Equal(t, before+1, granted())
			}
			require.NoError(t, p.Finish(sent, nil))
			idle(p)
		}
	}
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
			p := ucppair.New(t, tlsets.Real(tc.tls, tc.tls), ucp.Config{}).Both().Warm()
			const n = 50
			for k := range n {
				send, err := p.A.EP.TagSend(7, testenv.Pattern(100, k), nil)
				require.NoError(t, err)
				require.NoError(t, p.Finish(p.B.W.TagRecv(make([]byte, 100), 7, 0, nil, nil)))
				require.NoError(t, p.Finish(send, nil)) // without credit it waits for the receive
			}
			count := func(x *ucppair.End, name string) uint64 {
				x.W.CountTraffic()
				return counters(x.W)["worker/"+name]
			}
			require.GreaterOrEqual(t, count(&p.A, tc.sent), uint64(n))
			p.Until(func() bool { // the latest credit arrives
				return count(&p.A, tc.sent) == count(&p.B, tc.received) && count(&p.B, tc.sent) == count(&p.A, tc.received) || tc.received == ""
			})
			before := count(&p.A, tc.sent)
			require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
			p.Until(func() bool { return counters(p.A.W)["worker/ep@made.closed"] == 1 })
			assert.GreaterOrEqual(t, count(&p.A, tc.sent), before)
			require.NoError(t, p.A.W.Close())
			assert.GreaterOrEqual(t, counters(p.A.W)["worker/"+tc.sent], before)
		})
	}
}

// TestTraffic_Adopted: an EP that the peer has made remains in its class when NewEP returns it.
func TestTraffic_Adopted(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Connect().Warm()
	require.NoError(t, p.Finish(p.A.EP.TagSend(7, nil, nil)))
	require.NoError(t, p.Finish(p.B.W.TagRecv(nil, 7, 0, nil, nil)))
	ep, err := p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	require.True(t, ep.Info().ByPeer)
	require.NoError(t, p.Finish(ep.Close(ucp.CloseFlush)))
	p.Until(func() bool { return counters(p.B.W)["worker/ep@accepted.closed"] == 1 })
	all := counters(p.B.W)
	assert.EqualValues(t, 1, all["worker/ep@accepted.connected"])
	assert.Zero(t, all["worker/ep@made.closed"])
}

// TestStats_GracefulClose: a peer that closes its worker does not count as a failure.
func TestStats_GracefulClose(t *testing.T) {
	for _, tls := range []string{"sm", "tcp", "rc_mlx5"} {
		t.Run(tls, func(t *testing.T) {
			p := ucppair.New(t, tlsets.Real(tls, tls), ucp.Config{}).Both().Warm()
			require.NoError(t, p.B.W.Close())
			p.Until(func() bool { return p.A.EP.Err() != nil })
			require.ErrorIs(t, p.A.EP.Err(), ucs.ErrPeerClosed)
			all := counters(p.A.W)
			for _, name := range []string{"broken_lanes", "replaced_lanes", "failed_eps", "bad_messages"} {
				assert.Zero(t, all["worker."+name], name)
			}
			assert.EqualValues(t, 1, all["worker.left_peers"])
		})
	}
}

// TestStats_Waits: messages that wait for credit, and messages with rendezvous, are counted once.
func TestStats_Waits(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Both().Warm()
	p.B.W.OnActive(1, func(m *ucp.ActiveMessage) {
		if m.Data == nil {
			r, err := m.Recv(make([]byte, m.Length), nil)
			require.NoError(t, err)
			if r != nil {
				r.Release()
			}
		}
	})
	var sends []*ucp.Request
	for range 3000 {
		r, err := p.A.EP.SendActive(1, nil, make([]byte, 64), nil)
		require.NoError(t, err)
		if r != nil {
			sends = append(sends, r)
		}
	}
	require.NotEmpty(t, sends)
	for _, r := range sends {
		require.NoError(t, p.Finish(r, nil))
	}
	p.A.W.CountTraffic()
	p.B.W.CountTraffic()
	all := counters(p.A.W)
	assert.Equal(t, all["worker.waits_for_credit"], all["worker/ep@made.waits_for_credit"])
	assert.Zero(t, all["worker/ep@accepted.waits_for_credit"])
	assert.Positive(t, all["worker.waits_for_credit"])
	assert.Positive(t, all["worker.announced_messages"], "messages without credit use rendezvous")
	assert.Equal(t, all["worker.announced_messages"], counters(p.B.W)["worker.fetched_by_get"]+counters(p.B.W)["worker.fetched_by_put"]+counters(p.B.W)["worker.fetched_by_copies"])
}

// TestStats_Dials: each call of Dial is counted by its result.
func TestStats_Dials(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	l := listen(t, &p.B, "unix", "@"+t.Name(), ucp.ListenConfig{Accept: func(r *ucp.ConnRequest) bool { return string(r.Private) == "friend" }})
	for _, private := range []string{"friend", "foe"} {
		_, _ = p.A.W.DialWith(t.Context(), "unix", l.Addr().String(), &ucp.DialConfig{Private: []byte(private)}, progressing(p))
	}
	_, _ = p.A.W.DialWith(t.Context(), "unix", "@nothing listens here", &ucp.DialConfig{}, progressing(p))
	all := counters(p.A.W)
	for _, name := range []string{"connected", "rejected_program", "failed"} {
		assert.EqualValues(t, 1, all["worker/dial."+name], name)
	}
}

// TestSnapshot: any goroutine may read derived counters.
func TestSnapshot(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{}).Both().Warm()
	require.NoError(t, p.Finish(p.A.EP.TagSend(7, testenv.Pattern(100, 1), nil)))
	serving(t, p.A.W)
	s, err := p.A.W.Snapshot(t.Context())
	require.NoError(t, err)
	found := false
	for path, n := range s.All() {
		if path == "worker/ep@made.sent_bytes" {
			found = n == 100+window.MessageCharge
		}
	}
	assert.True(t, found, "%v", s)
}
