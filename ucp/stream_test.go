package ucp

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
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// streamed connects, and returns the EPs at both ends of a's stream.
func (p *pair) streamed() (from, to *EP) {
	p.t.Helper()
	p.connect()
	require.NoError(p.t, p.finish(p.a.ep.StreamSend([]byte{'!'}, nil)))
	p.until(func() bool {
		to = p.b.w.StreamReady()
		return to != nil
	})
	requireBytes(p.t, []byte{'!'}, p.read(to, 1))
	require.Nil(p.t, p.b.w.StreamReady())
	return p.a.ep, to
}

// read receives n bytes.
func (p *pair) read(e *EP, n int) []byte {
	p.t.Helper()
	buf, got := make([]byte, n), 0
	r, err := e.StreamRecv(buf, true, &got, nil)
	require.NoError(p.t, p.finish(r, err))
	require.Equal(p.t, n, got)
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
	overAll(t, func(t *testing.T, p *pair) {
		from, to := p.streamed()
		rapid.Check(t, func(rt *rapid.T) {
			cuts := rapid.SliceOfN(lengths, 1, 8).Draw(rt, "sends")
			total := 0
			for _, n := range cuts {
				total += n
			}
			want := random(total, rapid.Uint64().Draw(rt, "seed"))
			var sends []*Request
			rest := want
			for _, n := range cuts {
				r, err := from.StreamSend(rest[:n], nil)
				require.NoError(rt, err)
				if r != nil {
					sends = append(sends, r)
				}
				rest = rest[n:]
				for range rapid.IntRange(0, 3).Draw(rt, "steps") {
					p.step()
				}
			}
			got := p.drawReads(rt, to, total)
			requireBytes(t, want, got)
			for _, r := range sends {
				require.NoError(rt, p.finish(r, nil))
			}
		})
	})
}

// drawReads receives n bytes with calls that rapid draws.
func (p *pair) drawReads(rt *rapid.T, e *EP, n int) (got []byte) {
	for len(got) < n {
		size := min(n-len(got), rapid.IntRange(1, 30000).Draw(rt, "receive"))
		switch rapid.IntRange(0, 2).Draw(rt, "how") {
		case 0:
			got = append(got, p.read(e, size)...)
		case 1:
			buf, k := make([]byte, size), 0
			r, err := e.StreamRecv(buf, false, &k, nil)
			require.NoError(rt, p.finish(r, err))
			require.Positive(rt, k)
			got = append(got, buf[:k]...)
		default:
			if d := e.StreamData(); d != nil {
				got = append(got, d.Bytes...)
				d.Release()
			}
			p.step()
		}
	}
	return got
}

// TestStream_PostedFirst: posted receives complete in order, without buffering.
func TestStream_PostedFirst(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		from, to := p.streamed()
		sizes := []int{1, 7, 300, 20000, 9, 64000, 2}
		bufs, counts, total := make([][]byte, len(sizes)), make([]int, len(sizes)), 0
		var receives []*Request
		for i, n := range sizes {
			bufs[i] = make([]byte, n)
			r, err := to.StreamRecv(bufs[i], true, &counts[i], nil)
			require.NoError(t, err)
			receives = append(receives, r)
			total += n
		}
		want := pattern(total, 3)
		require.NoError(t, p.finish(from.StreamSend(want, nil)))
		for i, r := range receives {
			require.NoError(t, p.finish(r, nil))
			require.Equal(t, sizes[i], counts[i])
			requireBytes(t, want[:sizes[i]], bufs[i])
			want = want[sizes[i]:]
		}
		require.Nil(t, to.StreamData(), "nothing was buffered")
	})
}

// TestStream_NotRead: if a peer does not read, its sender waits, and the buffered bytes are limited. Other peers are
// not affected.
func TestStream_NotRead(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		from, to := p.streamed()
		other, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
		require.NoError(t, err)
		want := pattern(3*defaultEagerWindow, 1)
		r, err := from.StreamSend(want, nil)
		require.NoError(t, err)
		require.NotNil(t, r)
		late, err := from.StreamSend([]byte("end"), nil)
		require.NoError(t, err)
		require.NotNil(t, late, "it must not overtake a waiting send")
		p.until(func() bool {
			return from.msgs.stream.starved && from.msgs.Credit < charge(from.lane(wireup.AM).Iface.streamPiece())
		})
		require.False(t, r.Done())

		require.NoError(t, p.finish(other.StreamSend([]byte("other"), nil)))
		var third *EP
		p.until(func() bool {
			third = p.b.w.StreamReady()
			return third != nil && third != to
		})
		requireBytes(t, []byte("other"), p.read(third, 5))
		kept := 0
		for d := to.msgs.stream.unread.first; d != nil; d = d.next {
			kept += cap(d.buf)
		}
		assert.LessOrEqual(t, kept, 2*(defaultEagerWindow+window.MaxReserve))
		assert.False(t, r.Done())

		requireBytes(t, want, p.read(to, len(want)))
		requireBytes(t, []byte("end"), p.read(to, 3))
		require.NoError(t, p.finish(r, nil))
		require.NoError(t, p.finish(late, nil))
		require.NoError(t, p.finish(other.Close(CloseFlush)))
	})
}

// TestStream_SmallWindow: streams continue if the budget of the worker permits each peer the first window only.
func TestStream_SmallWindow(t *testing.T) {
	for _, set := range faketp.AllSets() {
		set.Run(t, func(t *testing.T) {
			p := newPair(t, set, Config{EagerBudget: 1})
			from, to := p.streamed()
			want := pattern(300000, 4)
			r, err := from.StreamSend(want, nil)
			require.NoError(t, err)
			got, buf := []byte{}, make([]byte, 777)
			for len(got) < len(want) {
				n := 0
				require.NoError(t, p.finish(to.StreamRecv(buf, false, &n, nil)))
				got = append(got, buf[:n]...)
			}
			requireBytes(t, want, got)
			require.NoError(t, p.finish(r, nil))
		})
	}
}

// TestStream_Mixed: active messages and both directions of the stream of one EP.
func TestStream_Mixed(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("a loop-back has one stream")
		}
		got := collect(t, p.b.w, 9)
		from, to := p.streamed()
		there, back := pattern(150000, 1), pattern(90000, 2)
		bufThere, bufBack := make([]byte, len(there)), make([]byte, len(back))
		var n, k int
		var reqs []*Request
		keep := func(r *Request, err error) {
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
			keep(from.SendActive(9, []byte{byte(i)}, pattern(activeSizes[i%len(activeSizes)], i), nil))
			keep(to.StreamSend(back[i*3000:][:3000], nil))
			p.step()
		}
		for _, r := range reqs {
			require.NoError(t, p.finish(r, nil))
		}
		p.until(have(t, got, parts))
		for i, m := range *got {
			require.Equal(t, []byte{byte(i)}, m.header)
			requireBytes(t, pattern(activeSizes[i%len(activeSizes)], i), m.data)
		}
		requireBytes(t, there, bufThere)
		requireBytes(t, back, bufBack)
	})
}

// TestStream_PeerCloses: data that was sent before the peer closed can be read. Then the error says that it has closed.
func TestStream_PeerCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("a connection to oneself ends as a whole")
		}
		p.both()
		require.NoError(t, p.finish(p.b.ep.StreamSend([]byte{1}, nil)))
		requireBytes(t, []byte{1}, p.read(p.a.ep, 1))
		want := pattern(40000, 5)
		require.NoError(t, p.finish(p.a.ep.StreamSend(want, nil)))
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		p.until(func() bool { return p.b.ep.Err() != nil })
		requireBytes(t, want[:30000], p.read(p.b.ep, 30000))
		buf, n := make([]byte, 20000), 0
		r, err := p.b.ep.StreamRecv(buf, true, &n, nil)
		require.Nil(t, r)
		require.ErrorIs(t, err, ucs.ErrPeerClosed)
		requireBytes(t, want[30000:], buf[:n])
		_, err = p.b.ep.StreamRecv(buf, false, &n, nil)
		require.ErrorIs(t, err, ucs.ErrPeerClosed)
		require.Zero(t, n)
	})
}

// TestStream_DisconnectFirst: data that the peer has sent before it closed is not lost if the DISCONNECT arrives first.
func TestStream_DisconnectFirst(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("a connection to oneself ends as a whole")
		}
		p.both()
		require.NoError(t, p.finish(p.b.ep.StreamSend([]byte{1}, nil)))
		requireBytes(t, []byte{1}, p.read(p.a.ep, 1))
		require.NoError(t, p.finish(p.a.ep.StreamSend([]byte{2}, nil)))
		requireBytes(t, []byte{2}, p.read(p.b.ep, 1))
		want := pattern(5000, 8)
		send, err := p.a.ep.StreamSend(want, nil)
		require.NoError(t, err)
		closing, err := p.a.ep.Close(CloseFlush)
		require.NoError(t, err)
		for range 1000 { // meanwhile the data can arrive, if it needs no poll
			p.a.w.Progress()
			p.b.w.pollOthers(p.b.ep.lane(wireup.AM).Iface)
		}
		require.NoError(t, p.finish(send, nil))
		require.NoError(t, p.finish(closing, nil))
		p.until(func() bool { return p.b.ep.Err() != nil })
		requireBytes(t, want, p.read(p.b.ep, len(want)))
	})
}

// pollOthers polls all ifaces but one.
func (w *Worker) pollOthers(x *iface) {
	for _, i := range w.ifaces {
		if i != x {
			i.Progress()
		}
	}
}

// TestStream_EndOfEP: sends and receives in progress complete once when the EP fails or closes.
func TestStream_EndOfEP(t *testing.T) {
	for name, end := range map[string]struct {
		by   func(e *EP)
		want error
	}{
		"failed": {func(e *EP) { e.fail(ucs.StatusConnReset, ucs.ErrConnReset, nil) }, ucs.ErrConnReset},
		"closed": {func(e *EP) { _ = releaseRequest(e.Close(CloseForce)) }, ucs.ErrCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, p *pair) {
				from, _ := p.streamed()
				buf, n := make([]byte, 10), 0
				receive, err := from.StreamRecv(buf, false, &n, nil)
				require.NoError(t, err)
				var sends []*Request
				for range 3 {
					r, err := from.StreamSend(pattern(2*defaultEagerWindow, 1), nil)
					require.NoError(t, err)
					sends = append(sends, r)
				}
				p.until(func() bool { return from.msgs.stream.starved })
				end.by(from)
				for _, r := range append(sends, receive) {
					require.ErrorIs(t, p.finish(r, nil), end.want)
				}
				require.Zero(t, n)
			})
		})
	}
}

// TestStream_CloseFlush: Close waits until the peer has read, and fails receives.
func TestStream_CloseFlush(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("as TestLoopback_CloseUnread")
		}
		from, to := p.streamed()
		n := 0
		receive, err := from.StreamRecv(make([]byte, 8), true, &n, nil)
		require.NoError(t, err)
		want := pattern(2*defaultEagerWindow, 6)
		r, err := from.StreamSend(want, nil)
		require.NoError(t, err)
		p.until(func() bool { return from.msgs.stream.starved })
		closing, err := from.Close(CloseFlush)
		require.NoError(t, err)
		require.ErrorIs(t, p.finish(receive, nil), ucs.ErrCanceled)
		requireBytes(t, want, p.read(to, len(want)))
		require.NoError(t, p.finish(r, nil))
		require.NoError(t, p.finish(closing, nil))
	})
}

// TestStream_GivenUp: a canceled send reports how many bytes it has sent, and a canceled receive does not use its
// buffer any more.
func TestStream_GivenUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		from, to := p.streamed()
		want := pattern(2*defaultEagerWindow, 7)
		sent := 0
		r, err := from.streamSend(want, nil, &sent)
		require.NoError(t, err)
		behind, err := from.StreamSend([]byte("behind"), nil)
		require.NoError(t, err)
		p.until(func() bool { return from.msgs.stream.starved })
		require.True(t, r.Cancel())
		require.ErrorIs(t, r.err(), ucs.ErrCanceled)
		r.Release()
		require.Positive(t, sent)
		require.Less(t, sent, len(want))
		requireBytes(t, want[:sent], p.read(to, sent))
		requireBytes(t, []byte("behind"), p.read(to, 6))
		require.NoError(t, p.finish(behind, nil))

		over, cancel := context.WithCancel(context.Background())
		cancel()
		buf := make([]byte, 4)
		n, err := to.StreamRecvWait(over, buf)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, n)
		require.NoError(t, p.finish(from.StreamSend([]byte("late"), nil)))
		p.until(func() bool { return to.StreamData() != nil })
		requireZero(t, buf, "written after the call")
	})
}

// TestStream_Forged: bytes at a wrong offset fail the EP, and no other one.
func TestStream_Forged(t *testing.T) {
	p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{})
	_, to := p.streamed()
	other, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
	require.NoError(t, err)
	n := 0
	receive, err := to.StreamRecv(make([]byte, 8), false, &n, nil)
	require.NoError(t, err)
	h := wire.Head{Word: 5, EP: to.id}
	p.b.w.handleStream(append(h.Append(nil), "forged"...), nil)
	require.ErrorIs(t, p.finish(receive, nil), ucs.ErrRemoteInvalid)
	require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
	require.NoError(t, p.finish(other.StreamSend([]byte{1}, nil)))
	bad := p.b.w.stats.badMessages.Load()
	p.b.w.handleStream([]byte{1, 2, 3}, nil)
	require.Equal(t, bad+1, p.b.w.stats.badMessages.Load())
}

// TestStream_End: each side ends its stream after all sends, also those that wait for credit. The other direction
// continues.
func TestStream_End(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		from, to := p.streamed()
		want := pattern(2*defaultEagerWindow, 9)
		send, err := from.StreamSend(want, nil)
		require.NoError(t, err)
		p.until(func() bool { return from.msgs.stream.starved })
		ended := 0
		end, err := from.StreamEnd(&OpParams{OnDone: func(err error) {
			assert.NoError(t, err)
			ended++
		}})
		require.NoError(t, err)
		require.NotNil(t, end, "it waits for the send")
		for _, late := range []func() (*Request, error){
			func() (*Request, error) { return from.StreamSend([]byte{1}, nil) },
			func() (*Request, error) { return from.StreamEnd(nil) },
		} {
			_, err = late()
			require.ErrorIs(t, err, ucs.ErrClosed)
		}
		requireBytes(t, want, p.read(to, len(want)))
		buf, n := make([]byte, 8), 0
		receive, err := to.StreamRecv(buf, true, &n, nil) // before or after the end has arrived
		if receive != nil {
			err = p.finish(receive, nil)
		}
		require.ErrorIs(t, err, ucs.ErrStreamEnded)
		require.Zero(t, n)
		require.NoError(t, p.finish(send, nil))
		require.NoError(t, p.finish(end, nil))
		p.until(func() bool { return ended == 1 })
		_, err = to.StreamRecv(buf, false, &n, nil)
		require.ErrorIs(t, err, ucs.ErrStreamEnded)
		if to == from {
			return
		}
		require.NoError(t, to.Err())
		require.NoError(t, p.finish(to.StreamSend([]byte("back"), nil)))
		requireBytes(t, []byte("back"), p.read(from, 4))
		require.NoError(t, p.finish(to.StreamEnd(nil)))
		receive, err = from.StreamRecv(buf, false, &n, nil)
		if receive != nil {
			err = p.finish(receive, nil)
		}
		require.ErrorIs(t, err, ucs.ErrStreamEnded)
		require.NoError(t, p.finish(from.TagSend(1, []byte("tag"), nil)))
	})
}

// TestStream_ForgedEnd: a stream end at a wrong offset, and bytes after the end, fail the EP.
func TestStream_ForgedEnd(t *testing.T) {
	for _, off := range []uint64{0, 2} { // one byte has arrived
		p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{})
		_, to := p.streamed()
		end := p.b.w.handleControl((*Worker).handleStreamEnd)
		end((&wire.Control{EP: to.id, ID: off}).Append(nil), nil)
		require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
	}
	p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), Config{})
	_, to := p.streamed()
	end := p.b.w.handleControl((*Worker).handleStreamEnd)
	end((&wire.Control{EP: to.id, ID: 1}).Append(nil), nil)
	require.NoError(t, to.Err())
	h := wire.Head{Word: 1, EP: to.id}
	p.b.w.handleStream(append(h.Append(nil), "late"...), nil)
	require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
	require.ErrorContains(t, to.Err(), "after its end")
}

// TestAllocs_Stream: a stream allocates nothing after warm-up.
func TestAllocs_Stream(t *testing.T) {
	for _, set := range []tlsets.Set{tlsets.Real("sm", "sm"), tlsets.Real("ib", `\rc`, `\ud`), tlsets.Real("all")} {
		t.Run(set.Name, func(t *testing.T) {
			p := newPair(t, set, Config{})
			from, to := p.streamed()
			data, buf, n := make([]byte, 20000), make([]byte, 20000), new(int)
			for _, size := range []int{1, 8, 200, 2000, 20000} {
				exchange := func(posted bool) func() {
					return func() {
						if posted {
							r, _ := to.StreamRecv(buf[:size], true, n, nil)
							p.endBoth(from.StreamSend(data[:size], nil))
							p.endBoth(r, nil)
							return
						}
						s, err := from.StreamSend(data[:size], nil)
						p.endBoth(to.StreamRecv(buf[:size], true, n, nil))
						p.endBoth(s, err)
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

// endBoth waits for an operation with progress of both sides, and allocates nothing.
func (p *pair) endBoth(r *Request, err error) {
	for err == nil && r != nil && !r.Done() {
		p.step()
	}
	if r != nil && err == nil {
		err = r.err()
		r.Release()
	}
	if err != nil {
		panic(err)
	}
}

// TestMessages_OrderAfterTheDial: messages that wait for a transport that fails to connect use the next one, in order,
// with and without credit.
func TestMessages_OrderAfterTheDial(t *testing.T) {
	dials, next := faketp.LikeSM(), faketp.LikeTCP()
	dials.Dials, next.Latency = true, time.Millisecond
	p, f := fakePair(t, Config{}, dials, next)
	got := collect(t, p.b.w, 1)
	p.connect()
	const n, size = 200, 300
	want := pattern(n*size, 1)
	var reqs []*Request
	for i := range n {
		for _, send := range []func() (*Request, error){
			func() (*Request, error) { return p.a.ep.StreamSend(want[i*size:][:size], nil) },
			func() (*Request, error) { return p.a.ep.SendActive(1, nil, []byte{byte(i)}, nil) },
		} {
			r, err := send()
			require.NoError(t, err)
			require.NotNil(t, r)
			reqs = append(reqs, r)
		}
	}
	p.until(func() bool { return f.Sent >= 2 }) // the handshake, in both directions
	f.FailNext("dial fsm", ucs.ErrNoMemory)
	var to *EP
	p.until(func() bool {
		to = p.b.w.StreamReady()
		return to != nil
	})
	requireBytes(t, want, p.read(to, len(want)))
	for _, r := range reqs {
		require.NoError(t, p.finish(r, nil))
	}
	p.until(have(t, got, n))
	for i, m := range *got {
		require.Equal(t, []byte{byte(i)}, m.data)
	}
	require.Equal(t, "ftcp", p.a.ep.lane(wireup.AM).Iface.kind())
}
