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

// pushingPair connects two workers over a transport whose messages are system calls if writes is set. Both sides have
// granted the first credit, and the windows do not grow.
func pushingPair(t *testing.T, writes bool) *ucppair.Pair {
	t.Helper()
	f := faketp.New(faketp.LikeSM())
	f.NeedsPush = writes
	set := tlsets.Set{Name: "fake", Open: func(testing.TB) (a, b []uct.Component) { return []uct.Component{f}, []uct.Component{f} }}
	p := ucppair.New(t, set, ucp.Config{RndvThresh: config.MemInf, EagerWindow: ucp.FirstWindow}).Both().Warm()
	for _, x := range [][2]*ucppair.End{{&p.A, &p.B}, {&p.B, &p.A}} {
		sent, err := x[0].EP.TagSend(7, make([]byte, batch), nil)
		require.NoError(t, err)
		require.NoError(t, p.Finish(x[1].W.TagRecv(make([]byte, batch), 7, exact, nil, nil)))
		require.NoError(t, p.Finish(sent, nil))
	}
	idle(p)
	return p
}

// batch is the length of a message for which a receiver returns credit, in bytes. The sender has less than half of its window
// left.
const batch = ucp.FirstWindow * 3 / 4

// creditsSent is the number of credit messages of a worker.
func creditsSent(w *ucp.Worker) uint64 {
	w.CountTraffic()
	n := counters(w)
	return n["worker/ep@accepted.credits_sent"] + n["worker/ep@made.credits_sent"]
}

// untilReceived makes progress until a receive of B is complete, and none after that.
func untilReceived(p *ucppair.Pair, received *ucp.Request) {
	p.T.Helper()
	testenv.ProgressWithin(p.T, testenv.Watchdog, func() bool {
		p.A.W.Progress()
		p.B.W.Progress()
		return received.Done()
	})
}

// TestTraffic_CreditBeforeClose: a closing EP sends the credit that the next Progress would send. Otherwise a peer that sends
// before it receives would wait for the credit, and CloseFlush for its receive.
func TestTraffic_CreditBeforeClose(t *testing.T) {
	for _, writes := range []bool{false, true} {
		p := pushingPair(t, writes)
		before := creditsSent(p.B.W)
		received, err := p.B.W.TagRecv(make([]byte, batch), 7, exact, nil, nil)
		require.NoError(t, err)
		sent, err := p.A.EP.TagSend(7, make([]byte, batch), nil)
		require.NoError(t, err)
		stream, err := p.A.EP.StreamSend(make([]byte, batch), nil)
		require.NoError(t, err)
		untilReceived(p, received)
		received.Release()
		last, err := p.B.EP.TagSendSync(8, []byte{1}, nil)
		require.NoError(t, err)
		closing, err := p.B.EP.Close(ucp.CloseFlush)
		require.NoError(t, err)
		require.NotNil(t, closing)
		require.Equal(t, before+1, creditsSent(p.B.W))
		require.NoError(t, p.Finish(sent, nil))
		require.NoError(t, p.Finish(stream, nil))
		require.False(t, closing.Done())
		require.NoError(t, p.Finish(p.A.W.TagRecv(make([]byte, 1), 8, exact, nil, nil)))
		require.NoError(t, p.Finish(last, nil))
		require.NoError(t, p.Finish(closing, nil))
	}
}

// TestTraffic_CreditAfterReply: if messages are system calls, credit is granted by the Progress after the one that receives the
// message, so that the program can reply first.
func TestTraffic_CreditAfterReply(t *testing.T) {
	for _, writes := range []bool{false, true} {
		p := pushingPair(t, writes)
		received, err := p.B.W.TagRecv(make([]byte, batch), 7, exact, nil, nil)
		require.NoError(t, err)
		before := creditsSent(p.B.W)
		sent, err := p.A.EP.TagSend(7, make([]byte, batch), nil)
		require.NoError(t, err)
		untilReceived(p, received)
		received.Release()
		require.Equal(t, !writes, creditsSent(p.B.W) == before+1)
		p.B.W.Progress()
		require.Equal(t, before+1, creditsSent(p.B.W))
		require.NoError(t, p.Finish(sent, nil))
	}
}

// TestTraffic_CreditOfStored: credit for stored messages that a call receives is granted by that call, also if messages are
// system calls: the program may make no progress for long.
func TestTraffic_CreditOfStored(t *testing.T) {
	n, kept := 0, []*ucp.ActiveMessage{}
	for _, tc := range []struct {
		name    string
		send    func(*ucp.EP) (*ucp.Request, error)
		stored  func(*ucp.Worker) bool
		receive func(*ucp.Worker) (*ucp.Request, error)
	}{
		{
			"tag",
			func(e *ucp.EP) (*ucp.Request, error) { return e.TagSend(7, make([]byte, batch), nil) },
			func(w *ucp.Worker) bool {
				_, _, ok := w.TagProbe(7, exact, false)
				return ok
			},
			func(w *ucp.Worker) (*ucp.Request, error) {
				return w.TagRecv(make([]byte, batch), 7, exact, nil, nil)
			},
		},
		{
			"stream",
			func(e *ucp.EP) (*ucp.Request, error) { return e.StreamSend(make([]byte, batch), nil) },
			func(w *ucp.Worker) bool { return w.StreamReady() != nil },
			func(w *ucp.Worker) (*ucp.Request, error) {
				return w.StreamReady().StreamRecv(make([]byte, batch), true, &n, nil)
			},
		},
		{
			"kept",
			func(e *ucp.EP) (*ucp.Request, error) { return e.SendActive(1, nil, make([]byte, batch), nil) },
			func(*ucp.Worker) bool { return len(kept) > 0 },
			func(*ucp.Worker) (*ucp.Request, error) { kept[0].Release(); return nil, nil },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, writes := range []bool{false, true} {
				p := pushingPair(t, writes)
				kept = nil
				p.B.W.OnActive(1, func(m *ucp.ActiveMessage) { kept = append(kept, m.Keep()) })
				require.NoError(t, p.Finish(tc.send(p.A.EP)))
				p.Until(func() bool { return tc.stored(p.B.W) })
				idle(p)
				before := creditsSent(p.B.W)
				r, err := tc.receive(p.B.W)
				require.NoError(t, err)
				require.Nil(t, r)
				require.Equal(t, before+1, creditsSent(p.B.W))
				idle(p)
				require.Equal(t, before+1, creditsSent(p.B.W))
			}
		})
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
