package ucp

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// streamLen is the length of a send that uses rendezvous, in bytes.
const streamLen = 100_000

// announcing is a pair over sm with a stream whose sends from memory use rendezvous.
func announcing(t testing.TB) (p *pair, from *Mem, e, to *EP) {
	p = newPair(t, tlsets.Real("sm", "sm"), Config{})
	from = p.a.memOf(t, 4*streamLen)
	e, to = p.streamed()
	copy(from.Bytes(), pattern(len(from.Bytes()), 9))
	into := p.b.memOf(t, streamLen)
	require.NoError(t, p.finish(e.TagSend(1, []byte{1}, nil))) // the window grows too
	require.NoError(t, p.finish(to.Put([]byte{1}, p.a.mem.Addr(), p.reverseKey(t, to), nil)))
	r, err := p.b.w.TagRecv(into.Bytes(), 1, exact, nil, nil)
	require.NoError(t, p.finish(r, err))
	p.until(func() bool { return e.msgs.Most > 2*minStreamAsked })
	require.NoError(t, p.finish(sendFrom(t, e, from, 0, minStreamAsked), nil))
	require.Len(t, p.read(to, minStreamAsked), minStreamAsked)
	p.until(func() bool { return e.lane(wireup.RMA) != nil })
	return p, from, e, to
}

// reverseKey makes a key for a's memory, and a lane of to for it.
func (p *pair) reverseKey(t testing.TB, to *EP) *RKey {
	key, err := to.Unpack(p.a.mem.Pack())
	require.NoError(t, err)
	t.Cleanup(key.Close)
	return key
}

// sendFrom starts a send of n bytes of memory at an offset.
func sendFrom(t testing.TB, e *EP, mem *Mem, off, n int) *Request {
	r, err := e.StreamSend(mem.Bytes()[off:off+n], &OpParams{Mem: mem})
	require.NoError(t, err)
	return r
}

// TestStreamGet_ToReceives: posted receives get the announced data, and the rest is buffered. The sender does not wait
// for a reader.
func TestStreamGet_ToReceives(t *testing.T) {
	p, from, e, to := announcing(t)
	sizes := []int{1, 70_000, 500}
	bufs, counts := make([][]byte, len(sizes)), make([]int, len(sizes))
	var receives []*Request
	total := 0
	for i, n := range sizes {
		bufs[i] = make([]byte, n)
		r, err := to.StreamRecv(bufs[i], true, &counts[i], nil)
		require.NoError(t, err)
		receives = append(receives, r)
		total += n
	}
	r := sendFrom(t, e, from, 0, streamLen)
	require.Equal(t, streamLen, e.msgs.stream.asked)
	assert.False(t, r.Cancel(), "the peer reads the buffer")
	assert.True(t, r.bufferInUse())
	p.b.w.Progress()
	off := 0
	for i, r := range receives {
		require.True(t, r.Done())
		require.NoError(t, p.finish(r, nil))
		assert.Equal(t, sizes[i], counts[i])
		requireBytes(t, from.Bytes()[off:off+sizes[i]], bufs[i])
		off += sizes[i]
	}
	require.NoError(t, p.finish(r, nil))
	held := to.msgs.Held
	assert.Equal(t, charge(streamLen), held, "the rest is charged with the whole")
	requireBytes(t, from.Bytes()[off:streamLen], p.read(to, streamLen-total))
	assert.Zero(t, to.msgs.Held)
	assert.Zero(t, e.msgs.stream.refused)
}

// TestStreamGet_Cuts: sends with and without rendezvous arrive in order, with any lengths of sends and receives, also
// if the receiver sometimes cannot read the memory.
func TestStreamGet_Cuts(t *testing.T) {
	p, from, e, to := announcing(t)
	mapped := to.lane(wireup.RMA).Mapped
	rapid.Check(t, func(rt *rapid.T) {
		var want []byte
		var sends []*Request
		for i := range rapid.IntRange(1, 12).Draw(rt, "sends") {
			n := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(8000, 70_000), rapid.IntRange(minStreamAsked, 4*streamLen)).Draw(rt, "length")
			off := rapid.IntRange(0, 4*streamLen-n).Draw(rt, "offset")
			to.lane(wireup.RMA).Mapped = mapped
			if rapid.IntRange(0, 3).Draw(rt, "refuse") == 0 {
				to.lane(wireup.RMA).Mapped = nil
			}
			var r *Request
			var err error
			if i%3 == 2 {
				r, err = e.StreamSend(from.Bytes()[off:off+n], nil)
			} else {
				r, err = e.StreamSend(from.Bytes()[off:off+n], &OpParams{Mem: from})
			}
			require.NoError(rt, err)
			if r != nil {
				sends = append(sends, r)
			}
			want = append(want, from.Bytes()[off:off+n]...)
			for range rapid.IntRange(0, 3).Draw(rt, "steps") {
				p.step()
			}
		}
		requireBytes(t, want, p.drawReads(rt, to, len(want)))
		for _, r := range sends {
			require.NoError(rt, p.finish(r, nil))
		}
		for p.step() > 0 {
		}
		assert.Zero(rt, to.msgs.Held)
		due := to.msgs.TotalDue()
		assert.Equal(rt, to.msgs.Size, e.msgs.Credit+due, "credit is lost")
	})
	require.Zero(t, p.a.w.stats.badMessages.Load()+p.b.w.stats.badMessages.Load())
}

// TestStreamGet_Rejected: data that the peer cannot read is sent in fragments. So are more and more later sends, until
// one is accepted.
func TestStreamGet_Rejected(t *testing.T) {
	p, from, e, to := announcing(t)
	x := to.lane(wireup.RMA)
	mapped := x.Mapped
	x.Mapped = nil
	asked := func() bool {
		r := sendFrom(t, e, from, 0, streamLen)
		yes := r != nil && r.stage == &streamChannel.announce
		requireBytes(t, from.Bytes()[:streamLen], p.read(to, streamLen))
		require.NoError(t, p.finish(r, nil))
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
	for e.msgs.stream.eagerSends > 0 {
		require.False(t, asked())
	}
	for range 3 {
		require.True(t, asked())
	}
	assert.Zero(t, e.msgs.stream.refused)
}

// TestStreamGet_Ends: announced sends complete once when the EP closes at either side, or at both, or fails.
func TestStreamGet_Ends(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends func(p *pair, e, to *EP) (reqs []*Request)
		want []error // any of these
	}{
		{"closed", func(p *pair, e, _ *EP) []*Request { return closes(p, CloseFlush, e) }, []error{nil}},
		{"closed by the reader", func(p *pair, _, to *EP) []*Request { return closes(p, CloseFlush, to) }, []error{nil, ucs.ErrPeerClosed}},
		{"closed by both", func(p *pair, e, to *EP) []*Request { return closes(p, CloseFlush, e, to) }, []error{nil, ucs.ErrPeerClosed}},
		{"cut off", func(p *pair, e, _ *EP) []*Request { return closes(p, CloseForce, e) }, []error{ucs.ErrCanceled}},
		{"failed", func(p *pair, e, _ *EP) []*Request {
			e.fail(ucs.StatusTimedOut, ucs.ErrTimedOut, nil)
			return nil
		}, []error{ucs.ErrTimedOut}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, from, e, to := announcing(t)
			back := p.b.memOf(t, streamLen)
			ended := 0
			count := func(error) { ended++ }
			var sends []*Request
			for _, s := range []struct {
				e   *EP
				mem *Mem
			}{{e, from}, {to, back}} {
				r, err := s.e.StreamSend(s.mem.Bytes()[:streamLen], &OpParams{Mem: s.mem, OnDone: count})
				require.NoError(t, err)
				require.NotNil(t, r)
				sends = append(sends, r)
			}
			require.Positive(t, e.msgs.stream.asked)
			closing := tc.ends(p, e, to)
			p.until(func() bool { return sends[0].Done() })
			err := sends[0].err()
			assert.True(t, anyOf(err, tc.want), "%v", err)
			for _, r := range closing {
				require.NoError(t, p.finish(r, nil))
			}
			if len(closing) == 0 {
				require.NoError(t, p.finish(e.Close(CloseForce)))
				require.NoError(t, p.finish(to.Close(CloseForce))) // the peer does not know
			}
			p.until(func() bool { return sends[1].Done() && ended == 2 })
			for _, r := range sends {
				r.Release()
			}
		})
	}
}

func closes(p *pair, mode CloseMode, list ...*EP) (reqs []*Request) {
	for _, e := range list {
		r, err := e.Close(mode)
		require.NoError(p.t, err)
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
	w := p.b.w
	rts := func(off uint64, rts wire.RTS, rest ...byte) []byte {
		h := wire.Head{Word: off, EP: to.id}
		return append(rts.Append(h.Append(nil)), rest...)
	}
	at := to.msgs.stream.came
	takesNone(t, w, []forged{
		{"nothing", w.handleStreamRTS, nil},
		{"no name", w.handleStreamRTS, rts(at, wire.RTS{Length: 1})},
		{"no bytes", w.handleStreamRTS, rts(at, wire.RTS{ID: 1})},
		{"too long", w.handleStreamRTS, rts(at, wire.RTS{ID: 1, Length: maxMessage + 1})},
		{"something behind it", w.handleStreamRTS, rts(at, wire.RTS{ID: 1, Length: 1}, 1)},
	})
	taken := p.a.w.handleControl((*Worker).handleStreamTaken)
	r := sendFrom(t, e, from, 0, streamLen)
	id := e.msgs.stream.sent + streamLen
	takesNone(t, p.a.w, []forged{
		{"another announcement", taken, control(e.id, id+1, 0)},
		{"another connection", taken, control(e.id+100, id, 0)},
		{"more than was announced", taken, (&wire.Control{EP: e.id, ID: id, Value: streamLen + 1}).Append(nil)},
	})
	requireBytes(t, from.Bytes()[:streamLen], p.read(to, streamLen))
	require.NoError(t, p.finish(r, nil))
	takesNone(t, p.a.w, []forged{{"after the end", taken, control(e.id, id, 0)}})

	w.handleStreamRTS(rts(to.msgs.stream.came, wire.RTS{ID: 1, Length: 8, Addr: 5, Key: p.a.mem.Pack()}), nil)
	assert.Equal(t, uint64(streamLen)+at, to.msgs.stream.came, "no data has arrived")
	w.handleStreamRTS(rts(to.msgs.stream.came+1, wire.RTS{ID: 1, Length: 8, Addr: 5, Key: p.a.mem.Pack()}), nil)
	require.ErrorIs(t, to.Err(), ucs.ErrRemoteInvalid)
}

// TestAllocs_StreamGet: a stream with rendezvous allocates nothing after warm-up.
func TestAllocs_StreamGet(t *testing.T) {
	p, from, e, to := announcing(t)
	buf, n := make([]byte, streamLen), 0
	params := &OpParams{Mem: from}
	do := func() {
		r, err := to.StreamRecv(buf, true, &n, nil)
		if err != nil {
			panic(err)
		}
		p.endBoth(e.StreamSend(from.Bytes()[:streamLen], params))
		p.endBoth(r, nil)
	}
	for range 300 {
		do()
	}
	testenv.NoAllocs(t, "announced", do)
	requireBytes(t, from.Bytes()[:streamLen], buf)
}

// TestStreamGet_ReaderCloses: the callback of a receive closes the EP while the rest of the data is read.
func TestStreamGet_ReaderCloses(t *testing.T) {
	for _, mode := range []CloseMode{CloseFlush, CloseForce} {
		p, from, e, to := announcing(t)
		buf, n := make([]byte, 1000), 0
		var closing *Request
		r, err := to.StreamRecv(buf, true, &n, &OpParams{OnDone: func(err error) {
			require.NoError(t, err)
			closing, err = to.Close(mode)
			require.NoError(t, err)
		}})
		require.NoError(t, err)
		send, err := e.StreamSend(from.Bytes()[:streamLen], &OpParams{Mem: from})
		require.NoError(t, err)
		require.Positive(t, e.msgs.stream.asked)
		p.until(func() bool { return r.Done() && send.Done() && (closing == nil || closing.Done()) })
		assert.Equal(t, from.Bytes()[:len(buf)], buf)
		assert.Len(t, buf, n)
		r.Release()
		send.Release()
		if closing != nil {
			closing.Release()
		}
	}
}
