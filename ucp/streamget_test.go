package ucp_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// streamLen is the length of a send that uses rendezvous, in bytes.
const streamLen = 100_000

// announcing is a pair over sm with a stream whose sends from memory use rendezvous.
func announcing(t testing.TB) (p *ucppair.Pair, from *ucp.Mem, e, to *ucp.EP) {
	p = ucppair.New(t, tlsets.Real("sm", "sm"), ucp.Config{})
	from = memOf(t, &p.A, 4*streamLen)
	e, to = openStream(p)
	copy(from.Bytes(), testenv.Pattern(len(from.Bytes()), 9))
	into := memOf(t, &p.B, streamLen)
	require.NoError(t, p.Finish(e.TagSend(1, []byte{1}, nil))) // the window grows too
	require.NoError(t, p.Finish(to.Put([]byte{1}, p.A.Mem.Addr(), reverseKey(t, p, to), nil)))
	r, err := p.B.W.TagRecv(into.Bytes(), 1, exact, nil, nil)
	require.NoError(t, p.Finish(r, err))
	p.Until(func() bool { return e.Messages().Most > 2*ucp.MinStreamAsked })
	require.NoError(t, p.Finish(sendFrom(t, e, from, 0, ucp.MinStreamAsked), nil))
	require.Len(t, readStream(p, to, ucp.MinStreamAsked), ucp.MinStreamAsked)
	p.Until(func() bool { return e.Lane(wireup.RMA) != nil })
	return p, from, e, to
}

// reverseKey makes a key for a's memory, and a lane of to for it.
func reverseKey(t testing.TB, p *ucppair.Pair, to *ucp.EP) *ucp.RKey {
	key, err := to.Unpack(p.A.Mem.Pack())
	require.NoError(t, err)
	t.Cleanup(key.Close)
	return key
}

// sendFrom starts a send of n bytes of memory at an offset.
func sendFrom(t testing.TB, e *ucp.EP, mem *ucp.Mem, off, n int) *ucp.Request {
	r, err := e.StreamSend(mem.Bytes()[off:off+n], &ucp.OpParams{Mem: mem})
	require.NoError(t, err)
	return r
}

// TestStreamGet_ToReceives: posted receives get the announced data, and the rest is buffered. The sender does not wait
// for a reader.
func TestStreamGet_ToReceives(t *testing.T) {
	p, from, e, to := announcing(t)
	sizes := []int{1, 70_000, 500}
	bufs, counts := make([][]byte, len(sizes)), make([]int, len(sizes))
	var receives []*ucp.Request
	total := 0
	for i, n := range sizes {
		bufs[i] = make([]byte, n)
		r, err := to.StreamRecv(bufs[i], true, &counts[i], nil)
		require.NoError(t, err)
		receives = append(receives, r)
		total += n
	}
	r := sendFrom(t, e, from, 0, streamLen)
	require.Equal(t, streamLen, e.Messages().Stream().RequestedBytes())
	assert.False(t, r.Cancel(), "the peer reads the buffer")
	assert.True(t, r.BufferInUse())
	p.B.W.Progress()
	off := 0
	for i, r := range receives {
		require.True(t, r.Done())
		require.NoError(t, p.Finish(r, nil))
		assert.Equal(t, sizes[i], counts[i])
		testenv.RequireBytes(t, from.Bytes()[off:off+sizes[i]], bufs[i])
		off += sizes[i]
	}
	require.NoError(t, p.Finish(r, nil))
	held := to.Messages().Held
	assert.Equal(t, window.Charge(streamLen), held, "the rest is charged with the whole")
	testenv.RequireBytes(t, from.Bytes()[off:streamLen], readStream(p, to, streamLen-total))
	assert.Zero(t, to.Messages().Held)
	assert.Zero(t, e.Messages().Stream().Refused())
}

// TestStreamGet_Cuts: sends with and without rendezvous arrive in order, with any lengths of sends and receives, also
// if the receiver sometimes cannot read the memory.
func TestStreamGet_Cuts(t *testing.T) {
	p, from, e, to := announcing(t)
	mapped := to.Lane(wireup.RMA).Mapped
	rapid.Check(t, func(rt *rapid.T) {
		var want []byte
		var sends []*ucp.Request
		for i := range rapid.IntRange(1, 12).Draw(rt, "sends") {
			n := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(8000, 70_000), rapid.IntRange(ucp.MinStreamAsked, 4*streamLen)).Draw(rt, "length")
			off := rapid.IntRange(0, 4*streamLen-n).Draw(rt, "offset")
			to.Lane(wireup.RMA).Mapped = mapped
			if rapid.IntRange(0, 3).Draw(rt, "refuse") == 0 {
				to.Lane(wireup.RMA).Mapped = nil
			}
			var r *ucp.Request
			var err error
			if i%3 == 2 {
				r, err = e.StreamSend(from.Bytes()[off:off+n], nil)
			} else {
				r, err = e.StreamSend(from.Bytes()[off:off+n], &ucp.OpParams{Mem: from})
			}
			require.NoError(rt, err)
			if r != nil {
				sends = append(sends, r)
			}
			want = append(want, from.Bytes()[off:off+n]...)
			for range rapid.IntRange(0, 3).Draw(rt, "steps") {
				p.Step()
			}
		}
		testenv.RequireBytes(t, want, drawReads(p, rt, to, len(want)))
		for _, r := range sends {
			require.NoError(rt, p.Finish(r, nil))
		}
		for p.Step() > 0 {
		}
		assert.Zero(rt, to.Messages().Held)
		due := to.Messages().TotalDue()
		assert.Equal(rt, to.Messages().Size, e.Messages().Credit+due, "credit is lost")
	})
	require.Zero(t, p.A.W.BadMessages().Load()+p.B.W.BadMessages().Load())
}

// TestStreamGet_Rejected: data that the peer cannot read is sent in fragments. So are more and more later sends, until
// one is accepted.
func TestStreamGet_Rejected(t *testing.T) {
	p, from, e, to := announcing(t)
	x := to.Lane(wireup.RMA)
	mapped := x.Mapped
	x.Mapped = nil
	asked := func() bool {
		r := sendFrom(t, e, from, 0, streamLen)
		yes := r != nil && r.AnnouncesStream()
		testenv.RequireBytes(t, from.Bytes()[:streamLen], readStream(p, to, streamLen))
		require.NoError(t, p.Finish(r, nil))
		return yes
	}
	var announced []int
	for i := range 16 {
		if asked() {
			announced = append(announced, i)
		}
	}
	assert.Equal(t, []int{0, 3, 8}, announced)
	x.Mapped = mapped
	for e.Messages().Stream().EagerSends() > 0 {
		require.False(t, asked())
	}
	for range 3 {
		require.True(t, asked())
	}
	assert.Zero(t, e.Messages().Stream().Refused())
}

// TestStreamGet_Ends: announced sends complete once when the EP closes at either side, or at both, or fails.
func TestStreamGet_Ends(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends func(p *ucppair.Pair, e, to *ucp.EP) (reqs []*ucp.Request)
		want []error // any of these
	}{
		{"closed", func(p *ucppair.Pair, e, _ *ucp.EP) []*ucp.Request { return closes(p, ucp.CloseFlush, e) }, []error{nil}},
		{"closed by the reader", func(p *ucppair.Pair, _, to *ucp.EP) []*ucp.Request { return closes(p, ucp.CloseFlush, to) }, []error{nil, ucs.ErrPeerClosed}},
		{"closed by both", func(p *ucppair.Pair, e, to *ucp.EP) []*ucp.Request { return closes(p, ucp.CloseFlush, e, to) }, []error{nil, ucs.ErrPeerClosed}},
		{"cut off", func(p *ucppair.Pair, e, _ *ucp.EP) []*ucp.Request { return closes(p, ucp.CloseForce, e) }, []error{ucs.ErrCanceled}},
		{"failed", func(p *ucppair.Pair, e, _ *ucp.EP) []*ucp.Request {
			e.Fail(ucs.StatusTimedOut, ucs.ErrTimedOut, nil)
			return nil
		}, []error{ucs.ErrTimedOut}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, from, e, to := announcing(t)
			back := memOf(t, &p.B, streamLen)
			ended := 0
			count := func(error) { ended++ }
			var sends []*ucp.Request
			for _, s := range []struct {
				e   *ucp.EP
				mem *ucp.Mem
			}{{e, from}, {to, back}} {
				r, err := s.e.StreamSend(s.mem.Bytes()[:streamLen], &ucp.OpParams{Mem: s.mem, OnDone: count})
				require.NoError(t, err)
				require.NotNil(t, r)
				sends = append(sends, r)
			}
			require.Positive(t, e.Messages().Stream().RequestedBytes())
			closing := tc.ends(p, e, to)
			p.Until(func() bool { return sends[0].Done() })
			err := sends[0].Result()
			assert.True(t, anyOf(err, tc.want), "%v", err)
			for _, r := range closing {
				require.NoError(t, p.Finish(r, nil))
			}
			if len(closing) == 0 {
				require.NoError(t, p.Finish(e.Close(ucp.CloseForce)))
				require.NoError(t, p.Finish(to.Close(ucp.CloseForce))) // the peer does not know
			}
			p.Until(func() bool { return sends[1].Done() && ended == 2 })
			for _, r := range sends {
				r.Release()
			}
		})
	}
}

func closes(p *ucppair.Pair, mode ucp.CloseMode, list ...*ucp.EP) (reqs []*ucp.Request) {
	for _, e := range list {
		r, err := e.Close(mode)
		require.NoError(p.T, err)
		if r != nil {
			reqs = append(reqs, r)
		}
	}
	return reqs
}

// anyOf reports whether err is one of these.
func anyOf(err error, want []error) bool {
	for _, w := range want {
		if w == nil && err == nil || w != nil && errors.Is(err, w) {
			return true
		}
	}
	return false
}

// TestStreamGet_Forged: replies without an RTS, and invalid RTS, change nothing. If the key does not permit access to
// the data, the data is sent in fragments.
func TestStreamGet_Forged(t *testing.T) {
	p, from, e, to := announcing(t)
	w := p.B.W
	rts := func(off uint64, rts wire.RTS, rest ...byte) []byte {
		h := wire.Head{Word: off, EP: to.ID()}
		return append(rts.Append(h.Append(nil)), rest...)
	}
	at := to.Messages().Stream().ReceiveOffset()
	takesNone(t, w, []forged{
		{"nothing", w.Handler(wire.AMStreamRTS), nil},
		{"no name", w.Handler(wire.AMStreamRTS), rts(at, wire.RTS{Length: 1})},
		{"no bytes", w.Handler(wire.AMStreamRTS), rts(at, wire.RTS{ID: 1})},
		{"too long", w.Handler(wire.AMStreamRTS), rts(at, wire.RTS{ID: 1, Length: ucp.MaxMessage + 1})},
		{"something behind it", w.Handler(wire.AMStreamRTS), rts(at, wire.RTS{ID: 1, Length: 1}, 1)},
	})
	taken := p.A.W.Handler(wire.AMStreamTaken)
	r := sendFrom(t, e, from, 0, streamLen)
	id := e.Messages().Stream().SendOffset() + streamLen
	takesNone(t, p.A.W, []forged{
		{"another announcement", taken, control(e.ID(), id+1, 0)},
		{"another connection", taken, control(e.ID()+100, id, 0)},
		{"more than was announced", taken, (&wire.Control{EP: e.ID(), ID: id, Value: streamLen + 1}).Append(nil)},
	})
	testenv.RequireBytes(t, from.Bytes()[:streamLen], readStream(p, to, streamLen))
	require.NoError(t, p.Finish(r, nil))
	takesNone(t, p.A.W, []forged{{"after the end", taken, control(e.ID(), id, 0)}})

	w.Handler(wire.AMStreamRTS)(rts(to.Messages().Stream().ReceiveOffset(), wire.RTS{ID: 1, Length: 8, Addr: 5, Key: p.A.Mem.Pack()}), nil)
	assert.Equal(t, uint64(streamLen)+at, to.Messages().Stream().ReceiveOffset(), "no data has arrived")
	w.Handler(wire.AMStreamRTS)(rts(to.Messages().Stream().ReceiveOffset()+1, wire.RTS{ID: 1, Length: 8, Addr: 5, Key: p.A.Mem.Pack()}), nil)
	require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
}

// TestAllocs_StreamGet: a stream with rendezvous allocates nothing after warm-up.
func TestAllocs_StreamGet(t *testing.T) {
	p, from, e, to := announcing(t)
	buf, n := make([]byte, streamLen), 0
	params := &ucp.OpParams{Mem: from}
	do := func() {
		r, err := to.StreamRecv(buf, true, &n, nil)
		if err != nil {
			panic(err)
		}
		p.MustFinish(e.StreamSend(from.Bytes()[:streamLen], params))
		p.MustFinish(r, nil)
	}
	for range 300 {
		do()
	}
	testenv.NoAllocs(t, "announced", do)
	testenv.RequireBytes(t, from.Bytes()[:streamLen], buf)
}

// TestStreamGet_ReaderCloses: the callback of a receive closes the EP while the rest of the data is read.
func TestStreamGet_ReaderCloses(t *testing.T) {
	for _, mode := range []ucp.CloseMode{ucp.CloseFlush, ucp.CloseForce} {
		p, from, e, to := announcing(t)
		buf, n := make([]byte, 1000), 0
		var closing *ucp.Request
		r, err := to.StreamRecv(buf, true, &n, &ucp.OpParams{OnDone: func(err error) {
			require.NoError(t, err)
			closing, err = to.Close(mode)
			require.NoError(t, err)
		}})
		require.NoError(t, err)
		send, err := e.StreamSend(from.Bytes()[:streamLen], &ucp.OpParams{Mem: from})
		require.NoError(t, err)
		require.Positive(t, e.Messages().Stream().RequestedBytes())
		p.Until(func() bool { return r.Done() && send.Done() && (closing == nil || closing.Done()) })
		assert.Equal(t, from.Bytes()[:len(buf)], buf)
		assert.Len(t, buf, n)
		r.Release()
		send.Release()
		if closing != nil {
			closing.Release()
		}
	}
}
