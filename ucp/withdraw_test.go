package ucp

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
)

// announce sends a message with rendezvous.
func (p *pair) announce(data []byte) *Request {
	p.t.Helper()
	r, err := p.a.ep.TagSend(1, data, nil)
	require.NoError(p.t, err)
	require.NotNil(p.t, r)
	return r
}

// TestCancel_Announced: a message that was not received is canceled, and uses no resources afterwards.
func TestCancel_Announced(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		for range 3 {
			r := p.announce(pattern(tlsets.LongMessage, 1))
			p.unexpected(1)
			require.False(t, r.Cancel())
			require.False(t, r.Cancel(), "it is canceled already")
			require.False(t, r.Done(), "the peer has not replied")
			require.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
			p.unexpected(0)
		}
		next := p.announce(pattern(tlsets.LongMessage, 2))
		buf := make([]byte, tlsets.LongMessage)
		require.NoError(t, p.finish(p.b.w.TagRecv(buf, 1, exact, nil, nil)))
		require.NoError(t, p.finish(next, nil))
		requireBytes(t, pattern(tlsets.LongMessage, 2), buf)
		require.False(t, next.Cancel())
		require.NoError(t, p.a.ep.Err())
	})
}

// TestCancel_AnnouncedProbed: a program that has probed a canceled message cannot receive it any more.
func TestCancel_AnnouncedProbed(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		var active *ActiveMessage
		p.b.w.OnActive(1, func(m *ActiveMessage) { active = m.Keep() })
		r, err := p.a.ep.SendActive(1, []byte("header"), pattern(tlsets.LongMessage, 1), nil)
		require.NoError(t, err)
		s := p.announce(pattern(tlsets.LongMessage, 1))
		p.unexpected(1)
		p.until(func() bool { return active != nil })
		tagged, _, ok := p.b.w.TagProbe(1, exact, true)
		require.True(t, ok)
		for _, x := range []*Request{r, s} {
			require.False(t, x.Cancel())
			require.ErrorIs(t, p.finish(x, nil), ucs.ErrCanceled)
		}
		_, err = active.Recv(make([]byte, tlsets.LongMessage), nil)
		require.ErrorIs(t, err, ucs.ErrCanceled)
		require.Equal(t, "header", string(active.Header))
		active.Release()
		require.ErrorIs(t, p.finish(tagged.Recv(make([]byte, tlsets.LongMessage), nil, nil)), ucs.ErrCanceled)
		require.Nil(t, p.b.from(p).msgs.rndv.first)
	})
}

// TestCancel_AnnouncedGivenUp: a send whose context is canceled waits for the reply of the peer, and the EP remains
// open.
func TestCancel_AnnouncedGivenUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		r := p.announce(pattern(tlsets.LongMessage, 1))
		p.unexpected(1)
		p.serve()
		r.GiveUp()
		require.NoError(t, p.a.ep.Err())
	})
}

// TestCancel_AnnouncedPeerCloses: the peer closes while the reply is outstanding.
func TestCancel_AnnouncedPeerCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		if p.oneself() {
			t.Skip("one worker")
		}
		p.connect()
		r := p.announce(pattern(tlsets.LongMessage, 1))
		p.unexpected(1)
		require.False(t, r.Cancel())
		require.NoError(t, p.b.w.Close())
		require.Error(t, p.finish(r, nil)) // the peer may have replied before it closed
		p.until(func() bool { return p.a.ep.Err() != nil })
	})
}

// TestCancel_ManyAnnounced: the cost of a cancel does not grow with the number of unexpected messages.
func TestCancel_ManyAnnounced(t *testing.T) {
	const n = 1000
	for _, latestFirst := range []bool{false, true} {
		p, _ := fakePair(t, Config{EagerWindow: 16 << 20}, faketp.LikeRC(), faketp.LikeUD())
		p.grown()
		data := pattern(tlsets.LongMessage, 1)
		reqs := make([]*Request, n)
		for i := range reqs {
			reqs[i] = p.announce(data)
		}
		p.unexpected(n)
		if latestFirst {
			slices.Reverse(reqs)
		}
		for _, r := range reqs {
			require.False(t, r.Cancel())
			p.step() // the number of messages that wait to be sent is limited
		}
		for _, r := range reqs {
			require.ErrorIs(t, p.finish(r, nil), ucs.ErrCanceled)
		}
		p.unexpected(0)
		m := p.b.from(p).msgs
		assert.Equal(t, uint64(n), m.rndv.steps)
		assert.Nil(t, m.rndv.first)
		assert.Nil(t, m.rndv.byName)
	}
}

// TestCancel_AnnouncedModel: a send succeeds if a receive has its message, and fails with ErrCanceled if none has, in
// any order of messages. Messages are received in order.
func TestCancel_AnnouncedModel(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect()
		p.grown()
		rapid.Check(t, func(t *rapid.T) { withdrawModel(t, p) })
	})
}

// withdrawModel sends, receives and cancels in random order.
func withdrawModel(t *rapid.T, p *pair) {
	var sends, receives []*Request
	var bufs [][]byte
	send := func() {
		if len(sends) < 8 {
			sends = append(sends, p.announce(pattern(tlsets.LongMessage, len(sends))))
		}
	}
	receive := func() {
		if len(receives) < 8 {
			bufs = append(bufs, make([]byte, tlsets.LongMessage))
			r, err := p.b.w.TagRecv(bufs[len(bufs)-1], 1, exact, nil, nil)
			require.NoError(t, err)
			receives = append(receives, r)
		}
	}
	for _, what := range rapid.SliceOfN(rapid.IntRange(0, 9), 1, 40).Draw(t, "steps") {
		switch {
		case what < 2:
			send()
		case what < 4:
			receive()
		case what < 7:
			p.a.w.Progress()
		case what < 9:
			p.b.w.Progress()
		case len(sends) > 0:
			sends[rapid.IntRange(0, len(sends)-1).Draw(t, "which")].Cancel()
		}
	}
	for _, r := range sends { // messages without a receive must not remain for the next case
		r.Cancel()
	}
	var came []int
	for i, r := range sends {
		switch err := p.finish(r, nil); {
		case err == nil:
			came = append(came, i)
		case !errors.Is(err, ucs.ErrCanceled):
			t.Fatal(err)
		}
	}
	for i, r := range receives {
		if i < len(came) {
			require.NoError(t, p.finish(r, nil))
			assert.Equal(t, pattern(tlsets.LongMessage, came[i]), bufs[i])
			continue
		}
		require.True(t, r.Cancel(), "no message is left for it")
		r.Release()
	}
	require.LessOrEqual(t, len(came), len(receives))
	require.NoError(t, p.a.ep.Err())
}
