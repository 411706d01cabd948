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
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// overLoopback runs a test with a worker of each transport set, where each message must find its EP.
func overLoopback(t *testing.T, cfg ucp.Config, f func(t *testing.T, w *ucp.Worker)) {
	overOneWorker(t, cfg, func(t *testing.T, w *ucp.Worker) {
		f(t, w)
		assert.Zero(t, w.BadMessages().Load())
	})
}

// overOneWorker runs a test with a worker of each transport set.
func overOneWorker(t *testing.T, cfg ucp.Config, f func(t *testing.T, w *ucp.Worker)) {
	for _, set := range faketp.AllSets() {
		set.Oneself = true
		set.Run(t, func(t *testing.T) { f(t, ucppair.New(t, set, cfg).A.W) })
	}
}

// loopbackLens are lengths of messages in one part, in fragments, and by rendezvous.
var loopbackLens = []int{5, 3000, 20000, 1 << 20}

// TestLoopback: messages and stream data of a loopback EP arrive on that EP, and each EP has its own stream.
func TestLoopback(t *testing.T) {
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		one, other := loopbackEP(t, w), loopbackEP(t, w)
		for i, n := range loopbackLens {
			first, second := testenv.Pattern(n, i), testenv.Pattern(n, i+1)
			testenv.RequireBytes(t, first, streamBack(t, one, first))
			testenv.RequireBytes(t, second, streamBack(t, other, second))
			testenv.RequireBytes(t, first, activeBack(t, one, first))
			testenv.RequireBytes(t, second, activeBack(t, other, second))
			testenv.RequireBytes(t, first, tagBack(t, one, first))
		}
	})
}

// TestLoopback_Reply: a handler replies over the EP of the message, which is the loopback EP.
func TestLoopback_Reply(t *testing.T) {
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		e := loopbackEP(t, w)
		replies := 0
		w.OnActive(1, func(m *ucp.ActiveMessage) {
			assert.Same(t, e, m.From)
			r, err := m.From.SendActive(2, nil, m.Header, nil)
			assert.NoError(t, err)
			r.Release()
		})
		w.OnActive(2, func(m *ucp.ActiveMessage) {
			assert.Same(t, e, m.From)
			replies++
		})
		for i := range 1000 {
			r, err := e.SendActive(1, []byte{1}, testenv.Pattern(i, i), nil)
			require.NoError(t, err)
			r.Release()
		}
		within(t, w, func() bool { return replies == 1000 })
	})
}

// TestLoopback_Many: 10,000 messages of all classes.
func TestLoopback_Many(t *testing.T) {
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		e := loopbackEP(t, w)
		sent, got, n := make([]byte, 64), make([]byte, 64), 0
		for i := range 10_000 {
			sent[0], sent[1] = byte(i), byte(i>>8)
			var recv, send *ucp.Request
			var err error
			if i%2 == 0 {
				recv, err = e.StreamRecv(got, true, &n, nil)
				require.NoError(t, err)
				send, err = e.StreamSend(sent, nil)
			} else {
				recv, err = w.TagRecv(got, 1, ^uint64(0), nil, nil)
				require.NoError(t, err)
				send, err = e.TagSend(1, sent, nil)
			}
			require.NoError(t, err)
			require.NoError(t, ucp.WaitAll(context.Background(), recv, send))
			if got[0] != sent[0] || got[1] != sent[1] {
				t.Fatalf("message %d: got %v", i, got[:2])
			}
		}
	})
}

// TestLoopback_CloseAtOnce: eager messages that were sent just before the EP closed arrive.
func TestLoopback_CloseAtOnce(t *testing.T) {
	ctx := context.Background()
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		handled := 0
		w.OnActive(1, func(*ucp.ActiveMessage) { handled++ })
		for i := range 10 {
			e := loopbackEP(t, w)
			for tag := range uint64(10) {
				require.NoError(t, e.TagSendWait(ctx, tag, testenv.Pattern(100*int(tag), i), nil))
				r, err := e.SendActive(1, nil, []byte{1}, nil)
				require.NoError(t, err)
				r.Release()
			}
			require.NoError(t, e.CloseWait(ctx, ucp.CloseFlush))
			require.Equal(t, 10*(i+1), handled)
			for tag := range uint64(10) {
				got := make([]byte, 2000)
				info, err := w.TagRecvWait(ctx, got, tag, ^uint64(0), nil)
				require.NoError(t, err)
				require.Same(t, e, info.From)
				testenv.RequireBytes(t, testenv.Pattern(100*int(tag), i), got[:info.Length])
			}
			within(t, w, func() bool { return w.EPs().Len() == 0 })
		}
	})
}

// TestLoopback_CloseUnread: a close does not wait for a reader of the stream.
func TestLoopback_CloseUnread(t *testing.T) {
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		for _, kept := range []int{0, 150} { // tagged messages: they use most of the window
			e := loopbackEP(t, w)
			streamBack(t, e, []byte{1})
			within(t, w, func() bool { return e.Messages().Credit > ucp.FirstWindow })
			for range kept {
				r, err := e.TagSend(1, make([]byte, 1000), nil)
				require.NoError(t, err)
				r.Release()
			}
			n, sends := 0, []*ucp.Request{}
			for _, size := range []int{1 << 20, 5, 3000, 1 << 20, 100_000} {
				r, err := e.StreamSend(testenv.Pattern(size, 1), nil)
				require.NoError(t, err)
				sends = append(sends, r)
			}
			within(t, w, func() bool { return e.Messages().Blocked() })
			closing, err := e.Close(ucp.CloseFlush)
			require.NoError(t, err)
			_, err = e.StreamRecv(make([]byte, 1), false, &n, nil)
			require.ErrorIs(t, err, ucs.ErrClosed)
			require.NoError(t, complete(t, w, append(sends, closing)...))
			require.Nil(t, w.StreamReady())
			for range kept {
				require.NoError(t, complete(t, w, mustStart(w.TagRecv(make([]byte, 1000), 1, ^uint64(0), nil, nil))))
			}
		}
	})
}

// TestLoopback_CloseMatched: Close waits for messages that match posted receives, with each scheme.
func TestLoopback_CloseMatched(t *testing.T) {
	for _, scheme := range []string{"auto", "get_zcopy", "put_zcopy", "am"} {
		t.Run(scheme, func(t *testing.T) {
			overLoopback(t, ucp.Config{RndvScheme: scheme}, func(t *testing.T, w *ucp.Worker) {
				e := loopbackEP(t, w)
				var reqs []*ucp.Request
				var got, want [][]byte
				w.OnActive(1, func(m *ucp.ActiveMessage) {
					buf := make([]byte, m.Length)
					got = append(got, buf)
					want = append(want, testenv.Pattern(m.Length, 1))
					r, err := m.Recv(buf, nil)
					assert.NoError(t, err)
					r.Release()
				})
				for tag, n := range loopbackLens {
					for _, send := range []func(uint64, []byte, *ucp.OpParams) (*ucp.Request, error){e.TagSend, e.TagSendSync} {
						buf, data := make([]byte, n), testenv.Pattern(n, tag)
						got, want = append(got, buf), append(want, data)
						reqs = append(reqs, mustStart(w.TagRecv(buf, uint64(tag), ^uint64(0), nil, nil)))
						reqs = append(reqs, mustStart(send(uint64(tag), data, nil)))
					}
					reqs = append(reqs, mustStart(e.SendActive(1, nil, testenv.Pattern(n, 1), nil)))
				}
				reqs = append(reqs, mustStart(e.Close(ucp.CloseFlush)))
				require.NoError(t, complete(t, w, reqs...))
				require.Len(t, got, 3*len(loopbackLens))
				for i := range want {
					testenv.RequireBytes(t, want[i], got[i])
				}
			})
		})
	}
}

// TestLoopback_CloseUnmatched: sends of messages that match no receive fail as if the peer of an EP had closed.
func TestLoopback_CloseUnmatched(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Both()
	apart := unmatched(t, p.A.W, p.B.W, p.A.EP, func() *ucp.EP { return epOfSender(&p.B, p) })
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		e := loopbackEP(t, w)
		assert.Equal(t, apart, unmatched(t, w, w, e, func() *ucp.EP { return e }))
	})
}

// unmatched sends messages over e that no receive matches, closes the receiving EP, and returns the results of the
// sends.
func unmatched(t *testing.T, from, to *ucp.Worker, e *ucp.EP, receiver func() *ucp.EP) map[string]ucs.Status {
	var kept *ucp.ActiveMessage
	to.OnActive(1, func(m *ucp.ActiveMessage) { kept = m.Keep() })
	long := testenv.Pattern(1<<20, 1)
	sends := map[string]*ucp.Request{
		"rendezvous":        mustStart(e.TagSend(1, long, nil)),
		"rendezvous, sync":  mustStart(e.TagSendSync(2, long, nil)),
		"sync":              mustStart(e.TagSendSync(3, []byte{1}, nil)),
		"active":            mustStart(e.SendActive(1, nil, long, nil)),
		"rendezvous, taken": mustStart(e.TagSend(4, long, nil)),
		"sync, taken":       mustStart(e.TagSendSync(5, []byte{1}, nil)),
	}
	var probed [2]*ucp.TagMessage
	both := func() { from.Progress(); to.Progress() }
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool {
		both()
		for i := range probed {
			if probed[i] == nil {
				probed[i], _, _ = to.TagProbe(uint64(4+i), ^uint64(0), true)
			}
		}
		return kept != nil && probed[0] != nil && probed[1] != nil
	})
	closing := mustStart(receiver().Close(ucp.CloseFlush))
	how := map[string]ucs.Status{}
	for name, r := range sends {
		testenv.ProgressWithin(t, testenv.Watchdog, func() bool { both(); return r.Done() })
		how[name] = r.Status()
		r.Release()
	}
	testenv.ProgressWithin(t, testenv.Watchdog, func() bool { both(); return closing.Done() })
	closing.Release()
	_, err := kept.Recv(make([]byte, 1), nil)
	require.ErrorIs(t, err, ucs.ErrClosed)
	kept.Release()
	_, err = probed[0].Recv(make([]byte, 1), nil, nil)
	require.ErrorIs(t, err, ucs.ErrCanceled)
	buf := make([]byte, 1)
	require.NoError(t, complete(t, to, mustStart(probed[1].Recv(buf, nil, nil))))
	require.NoError(t, complete(t, to, mustStart(to.TagRecv(buf, 3, ^uint64(0), nil, nil))))
	_, _, ok := to.TagProbe(0, 0, false)
	require.False(t, ok)
	return how
}

// TestLoopback_CloseBlocked: Close of an EP whose sends wait for credit completes. A posted receive gets its message,
// after any number of unreceived ones.
func TestLoopback_CloseBlocked(t *testing.T) {
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		e := loopbackEP(t, w)
		got := make([]byte, 10)
		reqs := []*ucp.Request{mustStart(w.TagRecv(got, 99, ^uint64(0), nil, nil))}
		for range 2000 {
			reqs = append(reqs, mustStart(e.TagSend(1, testenv.Pattern(500, 1), nil)))
		}
		reqs = append(reqs, mustStart(e.TagSend(99, testenv.Pattern(10, 2), nil)), mustStart(e.Close(ucp.CloseFlush)))
		require.NoError(t, complete(t, w, reqs...))
		testenv.RequireBytes(t, testenv.Pattern(10, 2), got)
	})
}

// TestLoopback_CloseForce: CloseForce ends everything, also after CloseFlush.
func TestLoopback_CloseForce(t *testing.T) {
	overOneWorker(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		for _, before := range []bool{false, true} {
			e := loopbackEP(t, w)
			reqs := []*ucp.Request{
				mustStart(e.TagSend(1, testenv.Pattern(1<<20, 1), nil)),
				mustStart(e.TagSendSync(2, []byte{1}, nil)),
				mustStart(e.StreamSend(make([]byte, 1<<20), nil)),
			}
			within(t, w, func() bool { return e.Messages().Blocked() })
			var closing *ucp.Request
			if before {
				closing = mustStart(e.Close(ucp.CloseFlush))
			}
			reqs = append(reqs, closing, mustStart(e.Close(ucp.CloseForce)))
			for i, r := range reqs {
				err := complete(t, w, r)
				if i < 3 && !before {
					require.ErrorIs(t, err, ucs.ErrCanceled)
				}
			}
			within(t, w, func() bool { return w.EPs().Len() == 0 })
			require.Nil(t, w.StreamReady())
		}
	})
}

// TestLoopback_Cancel: a message that waits for a receive can be canceled.
func TestLoopback_Cancel(t *testing.T) {
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		e := loopbackEP(t, w)
		r := mustStart(e.TagSend(1, testenv.Pattern(1<<20, 1), nil))
		within(t, w, func() bool { return e.Messages() != nil && e.Messages().AnnouncedCount() > 0 })
		require.False(t, r.Cancel())
		closing := mustStart(e.Close(ucp.CloseFlush))
		require.ErrorIs(t, complete(t, w, r), ucs.ErrCanceled)
		require.NoError(t, complete(t, w, closing))
	})
}

// TestLoopback_Atomics: atomics that the target executes, and notifications of puts, arrive before Close completes.
func TestLoopback_Atomics(t *testing.T) {
	overLoopback(t, ucp.Config{}, func(t *testing.T, w *ucp.Worker) {
		mem, err := w.Context().MemAlloc(64)
		require.NoError(t, err)
		defer mem.Close()
		var words []uint64
		var on *ucp.EP
		w.OnNotify(func(e *ucp.EP, word uint64) { words, on = append(words, word), e })
		e := loopbackEP(t, w)
		key, err := e.Unpack(mem.Pack())
		require.NoError(t, err)
		var old uint64
		fetch, err := e.AtomicFetch(uct.AtomicAdd, 8, 5, &old, key.Addr(), key)
		require.NoError(t, err)
		put, err := e.PutNotify([]byte{1}, key.Addr()+8, key, 7, nil)
		require.NoError(t, err)
		require.NoError(t, complete(t, w, fetch, put, mustStart(e.Close(ucp.CloseFlush))))
		key.Close()
		assert.Equal(t, []uint64{7}, words)
		assert.Same(t, e, on)
		assert.Equal(t, []byte{5, 0, 0, 0, 0, 0, 0, 0, 1}, mem.Bytes()[:9])
	})
}

// TestLoopback_Dial: a connection of Dial has two EPs, also if one worker has both.
func TestLoopback_Dial(t *testing.T) {
	set := tlsets.Real("self", "self")
	set.Oneself = true
	p := ucppair.New(t, set, ucp.Config{})
	l := listen(t, &p.B, "tcp", "127.0.0.1:0", ucp.ListenConfig{})
	peer, err := dialTo(p, l, ucp.DialConfig{})
	require.NoError(t, err)
	require.NoError(t, p.Finish(peer.EP.StreamSend([]byte{1}, nil)))
	p.Until(func() bool { return p.B.W.StreamReady() != nil })
	require.NotSame(t, peer.EP, p.B.W.StreamReady())
}

func loopbackEP(t *testing.T, w *ucp.Worker) *ucp.EP {
	e, err := w.NewEP(w.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	return e
}

// within makes progress until ok returns true.
func within(t *testing.T, w *ucp.Worker, ok func() bool) {
	t.Helper()
	testenv.ProgressOr(t, testenv.Watchdog, func() bool {
		if !ok() {
			w.Progress()
		}
		return ok()
	}, w.State)
}

// complete waits for requests, and returns their errors.
func complete(t *testing.T, w *ucp.Worker, reqs ...*ucp.Request) error {
	t.Helper()
	within(t, w, func() bool {
		for _, r := range reqs {
			if !r.Done() {
				return false
			}
		}
		return true
	})
	return ucp.WaitAll(context.Background(), reqs...)
}

func mustStart(r *ucp.Request, err error) *ucp.Request {
	if err != nil {
		panic(err)
	}
	return r
}

// streamBack sends data over the stream of e, and receives the same number of bytes from it.
func streamBack(t *testing.T, e *ucp.EP, data []byte) []byte {
	var n int
	got := make([]byte, len(data))
	recv, err := e.StreamRecv(got, true, &n, nil)
	require.NoError(t, err)
	send, err := e.StreamSend(data, nil)
	require.NoError(t, err)
	require.NoError(t, ucp.WaitAll(context.Background(), recv, send))
	return got[:n]
}

// activeBack sends an active message over e, which arrives on e.
func activeBack(t *testing.T, e *ucp.EP, data []byte) []byte {
	var from *ucp.EP
	got := make([]byte, len(data))
	var recv *ucp.Request
	e.Worker().OnActive(1, func(m *ucp.ActiveMessage) {
		from = m.From
		var err error
		recv, err = m.Recv(got, nil)
		require.NoError(t, err)
	})
	send, err := e.SendActive(1, nil, data, nil)
	require.NoError(t, err)
	within(t, e.Worker(), func() bool { return from != nil })
	require.NoError(t, ucp.WaitAll(context.Background(), recv, send))
	assert.Same(t, e, from)
	return got
}

// tagBack sends a tagged message over e, and waits until it is received.
func tagBack(t *testing.T, e *ucp.EP, data []byte) []byte {
	got := make([]byte, len(data))
	var info ucp.TagInfo
	recv, err := e.Worker().TagRecv(got, 9, ^uint64(0), &info, nil)
	require.NoError(t, err)
	send, err := e.TagSendSync(9, data, nil)
	require.NoError(t, err)
	require.NoError(t, ucp.WaitAll(context.Background(), recv, send))
	return got[:info.Length]
}
