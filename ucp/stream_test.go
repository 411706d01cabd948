package ucp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// openStream connects, and returns the EPs at both ends of a's stream.
func openStream(p *ucppair.Pair) (from, to *ucp.EP) {
	p.T.Helper()
	p.Connect()
	require.NoError(p.T, p.Finish(p.A.EP.StreamSend([]byte{'!'}, nil)))
	p.Until(func() bool {
		to = p.B.W.StreamReady()
		return to != nil
	})
	testenv.RequireBytes(p.T, []byte{'!'}, readStream(p, to, 1))
	require.Nil(p.T, p.B.W.StreamReady())
	return p.A.EP, to
}

// readStream receives n bytes.
func readStream(p *ucppair.Pair, e *ucp.EP, n int) []byte {
	p.T.Helper()
	buf, got := make([]byte, n), 0
	r, err := e.StreamRecv(buf, true, &got, nil)
	require.NoError(p.T, p.Finish(r, err))
	require.Equal(p.T, n, got)
	return buf
}

// random draws n bytes.
func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		seed = seed*6364136223846793005 + 1442695040888963407
		b[i] = byte(seed >> 56)
	}
	return b
}

// TestStream_Cuts: the received bytes do not depend on the lengths of sends and receives.
func TestStream_Cuts(t *testing.T) {
	lengths := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(230, 260), rapid.IntRange(8000, 8300), rapid.IntRange(0, 70000))
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		rapid.Check(t, func(rt *rapid.T) {
			cuts := rapid.SliceOfN(lengths, 1, 8).Draw(rt, "sends")
			total := 0
			for _, n := range cuts {
				total += n
			}
			want := random(total, rapid.Uint64().Draw(rt, "seed"))
			var sends []*ucp.Request
			rest := want
			for _, n := range cuts {
				r, err := from.StreamSend(rest[:n], nil)
				require.NoError(rt, err)
				if r != nil {
					sends = append(sends, r)
				}
				rest = rest[n:]
				for range rapid.IntRange(0, 3).Draw(rt, "steps") {
					p.Step()
				}
			}
			got := drawReads(p, rt, to, total)
			testenv.RequireBytes(t, want, got)
			for _, r := range sends {
				require.NoError(rt, p.Finish(r, nil))
			}
		})
	})
}

// drawReads receives n bytes with calls that rapid draws.
func drawReads(p *ucppair.Pair, rt *rapid.T, e *ucp.EP, n int) (got []byte) {
	for len(got) < n {
		size := min(n-len(got), rapid.IntRange(1, 30000).Draw(rt, "receive"))
		switch rapid.IntRange(0, 2).Draw(rt, "how") {
		case 0:
			got = append(got, readStream(p, e, size)...)
		case 1:
			buf, k := make([]byte, size), 0
			r, err := e.StreamRecv(buf, false, &k, nil)
			require.NoError(rt, p.Finish(r, err))
			require.Positive(rt, k)
			got = append(got, buf[:k]...)
		default:
			if d := e.StreamData(); d != nil {
				got = append(got, d.Bytes...)
				d.Release()
			}
			p.Step()
		}
	}
	return got
}

// TestStream_PostedFirst: posted receives complete in order, without buffering.
func TestStream_PostedFirst(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		sizes := []int{1, 7, 300, 20000, 9, 64000, 2}
		bufs, counts, total := make([][]byte, len(sizes)), make([]int, len(sizes)), 0
		var receives []*ucp.Request
		for i, n := range sizes {
			bufs[i] = make([]byte, n)
			r, err := to.StreamRecv(bufs[i], true, &counts[i], nil)
			require.NoError(t, err)
			receives = append(receives, r)
			total += n
		}
		want := testenv.Pattern(total, 3)
		require.NoError(t, p.Finish(from.StreamSend(want, nil)))
		for i, r := range receives {
			require.NoError(t, p.Finish(r, nil))
			require.Equal(t, sizes[i], counts[i])
			testenv.RequireBytes(t, want[:sizes[i]], bufs[i])
			want = want[sizes[i]:]
		}
		require.Nil(t, to.StreamData(), "nothing was buffered")
	})
}

// TestStream_NotRead: if a peer does not read, its sender waits, and the buffered bytes are limited. Other peers are
// not affected.
func TestStream_NotRead(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		want := testenv.Pattern(3*ucp.DefaultEagerWindow, 1)
		r, err := from.StreamSend(want, nil)
		require.NoError(t, err)
		require.NotNil(t, r)
		late, err := from.StreamSend([]byte("end"), nil)
		require.NoError(t, err)
		require.NotNil(t, late, "it must not overtake a waiting send")
		p.Until(func() bool {
			return from.Messages().Stream().Starved() && from.Messages().Credit < window.Charge(from.Lane(wireup.AM).Iface.StreamPiece())
		})
		require.False(t, r.Done())

		require.NoError(t, p.Finish(other.StreamSend([]byte("other"), nil)))
		var third *ucp.EP
		p.Until(func() bool {
			third = p.B.W.StreamReady()
			return third != nil && third != to
		})
		testenv.RequireBytes(t, []byte("other"), readStream(p, third, 5))
		kept := 0
		kept += to.Messages().Stream().Unread()
		assert.LessOrEqual(t, kept, 2*(ucp.DefaultEagerWindow+window.MaxReserve))
		assert.False(t, r.Done())

		testenv.RequireBytes(t, want, readStream(p, to, len(want)))
		testenv.RequireBytes(t, []byte("end"), readStream(p, to, 3))
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Finish(late, nil))
		require.NoError(t, p.Finish(other.Close(ucp.CloseFlush)))
	})
}

// TestStream_SmallWindow: streams continue if the budget of the worker permits each peer the first window only.
func TestStream_SmallWindow(t *testing.T) {
	for _, set := range faketp.AllSets() {
		set.Run(t, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{EagerBudget: 1})
			from, to := openStream(p)
			want := testenv.Pattern(300000, 4)
			r, err := from.StreamSend(want, nil)
			require.NoError(t, err)
			got, buf := []byte{}, make([]byte, 777)
			for len(got) < len(want) {
				n := 0
				require.NoError(t, p.Finish(to.StreamRecv(buf, false, &n, nil)))
				got = append(got, buf[:n]...)
			}
			testenv.RequireBytes(t, want, got)
			require.NoError(t, p.Finish(r, nil))
		})
	}
}

// TestStream_Mixed: active messages and both directions of the stream of one EP.
func TestStream_Mixed(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("a loop-back has one stream")
		}
		got := collect(t, p.B.W, 9)
		from, to := openStream(p)
		there, back := testenv.Pattern(150000, 1), testenv.Pattern(90000, 2)
		bufThere, bufBack := make([]byte, len(there)), make([]byte, len(back))
		var n, k int
		var reqs []*ucp.Request
		keep := func(r *ucp.Request, err error) {
			require.NoError(t, err)
			if r != nil {
				reqs = append(reqs, r)
			}
		}
		keep(to.StreamRecv(bufThere, true, &n, nil))
		keep(from.StreamRecv(bufBack, true, &k, nil))
		const parts = 30
		for i := range parts {
			keep(from.StreamSend(there[i*5000:][:5000], nil))
			keep(from.SendActive(9, []byte{byte(i)}, testenv.Pattern(activeSizes[i%len(activeSizes)], i), nil))
			keep(to.StreamSend(back[i*3000:][:3000], nil))
			p.Step()
		}
		for _, r := range reqs {
			require.NoError(t, p.Finish(r, nil))
		}
		p.Until(have(t, got, parts))
		for i, m := range *got {
			require.Equal(t, []byte{byte(i)}, m.header)
			testenv.RequireBytes(t, testenv.Pattern(activeSizes[i%len(activeSizes)], i), m.data)
		}
		testenv.RequireBytes(t, there, bufThere)
		testenv.RequireBytes(t, back, bufBack)
	})
}

// TestStream_PeerCloses: data that was sent before the peer closed can be read. Then the error says that it has closed.
func TestStream_PeerCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("a connection to oneself ends as a whole")
		}
		p.Both()
		require.NoError(t, p.Finish(p.B.EP.StreamSend([]byte{1}, nil)))
		testenv.RequireBytes(t, []byte{1}, readStream(p, p.A.EP, 1))
		want := testenv.Pattern(40000, 5)
		require.NoError(t, p.Finish(p.A.EP.StreamSend(want, nil)))
		require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
		p.Until(func() bool { return p.B.EP.Err() != nil })
		testenv.RequireBytes(t, want[:30000], readStream(p, p.B.EP, 30000))
		buf, n := make([]byte, 20000), 0
		r, err := p.B.EP.StreamRecv(buf, true, &n, nil)
		require.Nil(t, r)
		require.ErrorIs(t, err, ucs.ErrPeerClosed)
		testenv.RequireBytes(t, want[30000:], buf[:n])
		_, err = p.B.EP.StreamRecv(buf, false, &n, nil)
		require.ErrorIs(t, err, ucs.ErrPeerClosed)
		require.Zero(t, n)
	})
}

// TestStream_DisconnectFirst: data that the peer has sent before it closed is not lost if the DISCONNECT arrives first.
func TestStream_DisconnectFirst(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("a connection to oneself ends as a whole")
		}
		p.Both()
		require.NoError(t, p.Finish(p.B.EP.StreamSend([]byte{1}, nil)))
		testenv.RequireBytes(t, []byte{1}, readStream(p, p.A.EP, 1))
		require.NoError(t, p.Finish(p.A.EP.StreamSend([]byte{2}, nil)))
		testenv.RequireBytes(t, []byte{2}, readStream(p, p.B.EP, 1))
		want := testenv.Pattern(5000, 8)
		send, err := p.A.EP.StreamSend(want, nil)
		require.NoError(t, err)
		closing, err := p.A.EP.Close(ucp.CloseFlush)
		require.NoError(t, err)
		for range 1000 { // meanwhile the data can arrive, if it needs no poll
			p.A.W.Progress()
			pollOthers(p.B.W, p.B.EP.Lane(wireup.AM).Iface)
		}
		require.NoError(t, p.Finish(send, nil))
		require.NoError(t, p.Finish(closing, nil))
		p.Until(func() bool { return p.B.EP.Err() != nil })
		testenv.RequireBytes(t, want, readStream(p, p.B.EP, len(want)))
	})
}

// pollOthers polls all ifaces but one.
func pollOthers(w *ucp.Worker, x *ucp.Transport) {
	for _, i := range w.Ifaces() {
		if i != x {
			i.Progress()
		}
	}
}

// TestStream_EndOfEP: sends and receives in progress complete once when the EP fails or closes.
func TestStream_EndOfEP(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(e *ucp.EP)
		want error
	}{
		"failed": {func(e *ucp.EP) { e.Fail(ucs.StatusConnReset, ucs.ErrConnReset, nil) }, ucs.ErrConnReset},
		"closed": {func(e *ucp.EP) { _ = ucppair.Release(e.Close(ucp.CloseForce)) }, ucs.ErrCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, p *ucppair.Pair) {
				from, _ := openStream(p)
				buf, n := make([]byte, 10), 0
				receive, err := from.StreamRecv(buf, false, &n, nil)
				require.NoError(t, err)
				var sends []*ucp.Request
				for range 3 {
					r, err := from.StreamSend(testenv.Pattern(2*ucp.DefaultEagerWindow, 1), nil)
					require.NoError(t, err)
					sends = append(sends, r)
				}
				p.Until(func() bool { return from.Messages().Stream().Starved() })
				end.by(from)
				for _, r := range append(sends, receive) {
					require.ErrorIs(t, p.Finish(r, nil), end.want)
				}
				require.Zero(t, n)
			})
		})
	}
}

// TestStream_CloseFlush: Close waits until the peer has read, and fails receives.
func TestStream_CloseFlush(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("as TestLoopback_CloseUnread")
		}
		from, to := openStream(p)
		n := 0
		receive, err := from.StreamRecv(make([]byte, 8), true, &n, nil)
		require.NoError(t, err)
		want := testenv.Pattern(2*ucp.DefaultEagerWindow, 6)
		r, err := from.StreamSend(want, nil)
		require.NoError(t, err)
		p.Until(func() bool { return from.Messages().Stream().Starved() })
		closing, err := from.Close(ucp.CloseFlush)
		require.NoError(t, err)
		require.ErrorIs(t, p.Finish(receive, nil), ucs.ErrCanceled)
		testenv.RequireBytes(t, want, readStream(p, to, len(want)))
		require.NoError(t, p.Finish(r, nil))
		require.NoError(t, p.Finish(closing, nil))
	})
}

// TestStream_GivenUp: a canceled send reports how many bytes it has sent, and a canceled receive does not use its
// buffer any more.
func TestStream_GivenUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		want := testenv.Pattern(2*ucp.DefaultEagerWindow, 7)
		sent := 0
		r, err := from.StreamSendCounted(want, &sent)
		require.NoError(t, err)
		behind, err := from.StreamSend([]byte("behind"), nil)
		require.NoError(t, err)
		p.Until(func() bool { return from.Messages().Stream().Starved() })
		require.True(t, r.Cancel())
		require.ErrorIs(t, r.Result(), ucs.ErrCanceled)
		r.Release()
		require.Positive(t, sent)
		require.Less(t, sent, len(want))
		testenv.RequireBytes(t, want[:sent], readStream(p, to, sent))
		testenv.RequireBytes(t, []byte("behind"), readStream(p, to, 6))
		require.NoError(t, p.Finish(behind, nil))

		over, cancel := context.WithCancel(context.Background())
		cancel()
		buf := make([]byte, 4)
		n, err := to.StreamRecvWait(over, buf)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, n)
		require.NoError(t, p.Finish(from.StreamSend([]byte("late"), nil)))
		p.Until(func() bool { return to.StreamData() != nil })
		testenv.RequireZero(t, buf, "written after the call")
	})
}

// TestStream_Forged: bytes at a wrong offset fail the EP, and no other one.
func TestStream_Forged(t *testing.T) {
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
	_, to := openStream(p)
	other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	n := 0
	receive, err := to.StreamRecv(make([]byte, 8), false, &n, nil)
	require.NoError(t, err)
	h := wire.Head{Word: 5, EP: to.ID()}
	p.B.W.Handler(wire.AMStream)(append(h.Append(nil), "forged"...), nil)
	require.ErrorIs(t, p.Finish(receive, nil), ucs.ErrRemoteInvalid)
	require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
	require.NoError(t, p.Finish(other.StreamSend([]byte{1}, nil)))
	bad := p.B.W.BadMessages().Load()
	p.B.W.Handler(wire.AMStream)([]byte{1, 2, 3}, nil)
	require.Equal(t, bad+1, p.B.W.BadMessages().Load())
}

// TestStream_End: each side ends its stream after all sends, also those that wait for credit. The other direction
// continues.
func TestStream_End(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		from, to := openStream(p)
		want := testenv.Pattern(2*ucp.DefaultEagerWindow, 9)
		send, err := from.StreamSend(want, nil)
		require.NoError(t, err)
		p.Until(func() bool { return from.Messages().Stream().Starved() })
		ended := 0
		end, err := from.StreamEnd(&ucp.OpParams{OnDone: func(err error) {
			assert.NoError(t, err)
			ended++
		}})
		require.NoError(t, err)
		require.NotNil(t, end, "it waits for the send")
		for _, late := range []func() (*ucp.Request, error){
			func() (*ucp.Request, error) { return from.StreamSend([]byte{1}, nil) },
			func() (*ucp.Request, error) { return from.StreamEnd(nil) },
		} {
			_, err = late()
			require.ErrorIs(t, err, ucs.ErrClosed)
		}
		testenv.RequireBytes(t, want, readStream(p, to, len(want)))
		buf, n := make([]byte, 8), 0
		receive, err := to.StreamRecv(buf, true, &n, nil) // before or after the end has arrived
		if receive != nil {
			err = p.Finish(receive, nil)
		}
		require.ErrorIs(t, err, ucs.ErrStreamEnded)
		require.Zero(t, n)
		require.NoError(t, p.Finish(send, nil))
		require.NoError(t, p.Finish(end, nil))
		p.Until(func() bool { return ended == 1 })
		_, err = to.StreamRecv(buf, false, &n, nil)
		require.ErrorIs(t, err, ucs.ErrStreamEnded)
		if to == from {
			return
		}
		require.NoError(t, to.Err())
		require.NoError(t, p.Finish(to.StreamSend([]byte("back"), nil)))
		testenv.RequireBytes(t, []byte("back"), readStream(p, from, 4))
		require.NoError(t, p.Finish(to.StreamEnd(nil)))
		receive, err = from.StreamRecv(buf, false, &n, nil)
		if receive != nil {
			err = p.Finish(receive, nil)
		}
		require.ErrorIs(t, err, ucs.ErrStreamEnded)
		require.NoError(t, p.Finish(from.TagSend(1, []byte("tag"), nil)))
	})
}

// TestStream_ForgedEnd: a stream end at a wrong offset, and bytes after the end, fail the EP.
func TestStream_ForgedEnd(t *testing.T) {
	for _, off := range []uint64{0, 2} { // one byte has arrived
		p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
		_, to := openStream(p)
		end := p.B.W.Handler(wire.AMStreamEnd)
		end((&wire.Control{EP: to.ID(), ID: off}).Append(nil), nil)
		require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
	}
	p := ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), ucp.Config{})
	_, to := openStream(p)
	end := p.B.W.Handler(wire.AMStreamEnd)
	end((&wire.Control{EP: to.ID(), ID: 1}).Append(nil), nil)
	require.NoError(t, to.Err())
	h := wire.Head{Word: 1, EP: to.ID()}
	p.B.W.Handler(wire.AMStream)(append(h.Append(nil), "late"...), nil)
	require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
	require.ErrorContains(t, to.Err(), "after its end")
}

// TestAllocs_Stream: a stream allocates nothing after warm-up.
func TestAllocs_Stream(t *testing.T) {
	for _, set := range []tlsets.Set{tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`), tlsets.Real("all")} {
		t.Run(set.Name, func(t *testing.T) {
			p := ucppair.New(t, set, ucp.Config{})
			from, to := openStream(p)
			data, buf, n := make([]byte, 20000), make([]byte, 20000), new(int)
			for _, size := range []int{1, 8, 200, 2000, 20000} {
				exchange := func(posted bool) func() {
					return func() {
						if posted {
							r, _ := to.StreamRecv(buf[:size], true, n, nil)
							p.MustFinish(from.StreamSend(data[:size], nil))
							p.MustFinish(r, nil)
							return
						}
						s, err := from.StreamSend(data[:size], nil)
						p.MustFinish(to.StreamRecv(buf[:size], true, n, nil))
						p.MustFinish(s, err)
					}
				}
				for _, posted := range []bool{true, false} {
					op := exchange(posted)
					for range 300 {
						op()
					}
					testenv.NoAllocs(t, "stream", op)
				}
			}
		})
	}
}

// TestMessages_OrderAfterTheDial: messages that wait for a transport that fails to connect use the next one, in order,
// with and without credit.
func TestMessages_OrderAfterTheDial(t *testing.T) {
	dials, next := faketp.LikeSM(), faketp.LikeTCP()
	dials.Dials, next.Latency = true, time.Millisecond
	p, f := ucppair.Fake(t, ucp.Config{}, dials, next)
	got := collect(t, p.B.W, 1)
	p.Connect()
	const n, size = 200, 300
	want := testenv.Pattern(n*size, 1)
	var reqs []*ucp.Request
	for i := range n {
		for _, send := range []func() (*ucp.Request, error){
			func() (*ucp.Request, error) { return p.A.EP.StreamSend(want[i*size:][:size], nil) },
			func() (*ucp.Request, error) { return p.A.EP.SendActive(1, nil, []byte{byte(i)}, nil) },
		} {
			r, err := send()
			require.NoError(t, err)
			require.NotNil(t, r)
			reqs = append(reqs, r)
		}
	}
	p.Until(func() bool { return f.Sent >= 2 }) // the handshake, in both directions
	f.FailNext("dial fsm", ucs.ErrNoMemory)
	var to *ucp.EP
	p.Until(func() bool {
		to = p.B.W.StreamReady()
		return to != nil
	})
	testenv.RequireBytes(t, want, readStream(p, to, len(want)))
	for _, r := range reqs {
		require.NoError(t, p.Finish(r, nil))
	}
	p.Until(have(t, got, n))
	for i, m := range *got {
		require.Equal(t, []byte{byte(i)}, m.data)
	}
	require.Equal(t, "ftcp", kindOf(p.A.EP.Lane(wireup.AM).Iface))
}
