package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp/internal/window"
)

// TestAllocs_Waiting: many messages that wait for credit allocate nothing after warm-up.
func TestAllocs_Waiting(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	from, to := p.streamed()
	piece, all := pattern(4<<10, 1), make([]byte, 2*defaultEagerWindow)
	n := 0
	pass := func() {
		for range len(all) / len(piece) {
			if r, err := from.StreamSend(piece, nil); r != nil {
				r.Release()
			} else if err != nil {
				panic(err)
			}
		}
		r, err := to.StreamRecv(all, true, &n, nil)
		p.endBoth(r, err)
	}
	for range 10 { // warm the pools of all layers
		pass()
	}
	testenv.NoAllocs(t, "streams that wait", pass)
	requireBytes(t, piece, all[len(all)-len(piece):])
}

// TestReplay_BehindOthers: a message that waits for credit is sent when there is credit, also if an operation without a
// lane, and messages, wait before it.
func TestReplay_BehindOthers(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	from, to := p.streamed()
	var first *Request
	sent, data := 0, pattern(100, 1)
	send := func() (r *Request) {
		r, err := from.StreamSend(data, nil)
		require.NoError(t, err)
		sent += len(data)
		return r
	}
	for first == nil {
		first = send()
	}
	lane := false
	between := stage{name: "test", role: noRole, post: func(*Request) error { return nil }, admit: func(*Request) bool { return lane }}
	x, err := from.w.newRequest(from, &between).start()
	require.NoError(t, err)
	last := send()
	require.NotNil(t, last)
	r, err := to.StreamRecv(make([]byte, sent), true, new(int), nil)
	require.NoError(t, p.finish(r, err))
	require.NoError(t, p.finish(first, nil))
	require.NoError(t, p.finish(last, nil))
	require.False(t, x.Done())
	lane = true
	from.replay()
	require.NoError(t, p.finish(x, nil))
}

// TestReplay_SendsInside: messages that are sent while waiting operations start are queued behind the waiting messages.
func TestReplay_SendsInside(t *testing.T) {
	p := newPair(t, tlsets.Real("sm", "sm"), Config{})
	from, to := p.streamed()
	var sent []byte
	send := func() *Request {
		b := byte(len(sent))
		sent = append(sent, b)
		r, err := from.StreamSend([]byte{b}, nil)
		require.NoError(t, err)
		return r
	}
	var reqs []*Request
	lane := false
	inside := func(*Request) error {
		reqs = append(reqs, send())
		return nil
	}
	first := stage{name: "test", role: noRole, post: inside, admit: func(*Request) bool { return lane }}
	x, err := from.w.newRequest(from, &first).start()
	require.NoError(t, err)
	for len(reqs) < 3 {
		if r := send(); r != nil { // there is no more credit
			reqs = append(reqs, r)
		}
	}
	lane = true
	from.replay()
	require.NoError(t, p.finish(x, nil))
	require.Len(t, reqs, 4)
	got := make([]byte, len(sent))
	r, err := to.StreamRecv(got, true, new(int), nil)
	require.NoError(t, p.finish(r, err))
	require.Equal(t, sent, got)
	for _, r := range reqs {
		require.NoError(t, p.finish(r, nil))
	}
}

// TestNextPiece: a sender whose peer reads everything never waits forever, and fragments have their maximum length if
// the window is large enough for two.
func TestNextPiece(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Int64Range(firstWindow, 4*firstWindow).Draw(rt, "window")
		limit := rapid.IntRange(100, 3*firstWindow).Draw(rt, "longest piece")
		a := messages{Window: window.Window{Credit: size, Most: rapid.Int64Range(firstWindow, size).Draw(rt, "most seen")}}
		due, other := int64(0), rapid.Int64Range(messageCharge, firstWindow/2)
		spend := func(n int64) { // the peer reads it at once, and returns half a window at a time
			a.Credit -= n
			if due += n; due >= size/2 {
				a.Credit, due = a.Credit+due, 0
			}
		}
		for rest := rapid.IntRange(1, 6*firstWindow).Draw(rt, "bytes"); rest > 0; {
			n := a.nextPiece(rest, limit)
			require.Positive(rt, n, "%d of credit", a.Credit)
			require.LessOrEqual(rt, charge(n), a.Credit)
			if a.Most >= 2*charge(limit) {
				require.Equal(rt, min(rest, limit), n)
			}
			rest -= n
			spend(charge(n))
			if c := other.Draw(rt, "another message"); c <= a.Credit && rapid.Bool().Draw(rt, "is sent") {
				spend(c)
			}
		}
	})
}
