package ucp_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// announceTag sends a message with rendezvous.
func announceTag(p *ucppair.Pair, data []byte) *ucp.Request {
	p.T.Helper()
	r, err := p.A.EP.TagSend(1, data, nil)
	require.NoError(p.T, err)
	require.NotNil(p.T, r)
	return r
}

// TestCancel_Announced: a message that was not received is canceled, and uses no resources afterwards.
func TestCancel_Announced(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		for range 3 {
			r := announceTag(p, testenv.Pattern(tlsets.LongMessage, 1))
			waitUnexpected(p, 1)
			require.False(t, r.Cancel())
			require.False(t, r.Cancel(), "it is canceled already")
			require.False(t, r.Done(), "the peer has not replied")
			require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
			waitUnexpected(p, 0)
		}
		next := announceTag(p, testenv.Pattern(tlsets.LongMessage, 2))
		buf := make([]byte, tlsets.LongMessage)
		require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 1, exact, nil, nil)))
		require.NoError(t, p.Finish(next, nil))
		testenv.RequireBytes(t, testenv.Pattern(tlsets.LongMessage, 2), buf)
		require.False(t, next.Cancel())
		require.NoError(t, p.A.EP.Err())
	})
}

// TestCancel_AnnouncedProbed: a program that has probed a canceled message cannot receive it any more.
func TestCancel_AnnouncedProbed(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		var active *ucp.ActiveMessage
		p.B.W.OnActive(1, func(m *ucp.ActiveMessage) { active = m.Keep() })
		r, err := p.A.EP.SendActive(1, []byte("header"), testenv.Pattern(tlsets.LongMessage, 1), nil)
		require.NoError(t, err)
		s := announceTag(p, testenv.Pattern(tlsets.LongMessage, 1))
		waitUnexpected(p, 1)
		p.Until(func() bool { return active != nil })
		tagged, _, ok := p.B.W.TagProbe(1, exact, true)
		require.True(t, ok)
		for _, x := range []*ucp.Request{r, s} {
			require.False(t, x.Cancel())
			require.ErrorIs(t, p.Finish(x, nil), ucs.ErrCanceled)
		}
		_, err = active.Recv(make([]byte, tlsets.LongMessage), nil)
		require.ErrorIs(t, err, ucs.ErrCanceled)
		require.Equal(t, "header", string(active.Header))
		active.Release()
		require.ErrorIs(t, p.Finish(tagged.Recv(make([]byte, tlsets.LongMessage), nil, nil)), ucs.ErrCanceled)
		require.Zero(t, epOfSender(&p.B, p).Messages().AnnouncedCount())
	})
}

// TestCancel_AnnouncedGivenUp: a send whose context is canceled waits for the reply of the peer, and the EP remains
// open.
func TestCancel_AnnouncedGivenUp(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		r := announceTag(p, testenv.Pattern(tlsets.LongMessage, 1))
		waitUnexpected(p, 1)
		serveB(p)
		r.GiveUp()
		require.NoError(t, p.A.EP.Err())
	})
}

// TestCancel_AnnouncedPeerCloses: the peer closes while the reply is outstanding.
func TestCancel_AnnouncedPeerCloses(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		if p.Oneself() {
			t.Skip("one worker")
		}
		p.Connect()
		r := announceTag(p, testenv.Pattern(tlsets.LongMessage, 1))
		waitUnexpected(p, 1)
		require.False(t, r.Cancel())
		require.NoError(t, p.B.W.Close())
		require.Error(t, p.Finish(r, nil)) // the peer may have replied before it closed
		p.Until(func() bool { return p.A.EP.Err() != nil })
	})
}

// TestCancel_ManyAnnounced: the cost of a cancel does not grow with the number of unexpected messages.
func TestCancel_ManyAnnounced(t *testing.T) {
	const n = 1000
	for _, latestFirst := range []bool{false, true} {
		p, _ := ucppair.Fake(t, ucp.Config{EagerWindow: 16 << 20}, faketp.LikeRC(), faketp.LikeUD())
		growWindow(p)
		data := testenv.Pattern(tlsets.LongMessage, 1)
		reqs := make([]*ucp.Request, n)
		for i := range reqs {
			reqs[i] = announceTag(p, data)
		}
		waitUnexpected(p, n)
		if latestFirst {
			slices.Reverse(reqs)
		}
		for _, r := range reqs {
			require.False(t, r.Cancel())
			p.Step() // the number of messages that wait to be sent is limited
		}
		for _, r := range reqs {
			require.ErrorIs(t, p.Finish(r, nil), ucs.ErrCanceled)
		}
		waitUnexpected(p, 0)
		m := epOfSender(&p.B, p).Messages()
		assert.Equal(t, uint64(n), m.EverIndexed())
		assert.Zero(t, m.AnnouncedCount())
		assert.False(t, m.HasIndex())
	}
}

// TestCancel_AnnouncedModel: a send succeeds if a receive has its message, and fails with ErrCanceled if none has, in
// any order of messages. Messages are received in order.
func TestCancel_AnnouncedModel(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect()
		growWindow(p)
		rapid.Check(t, func(t *rapid.T) { withdrawModel(t, p) })
	})
}

// withdrawModel sends, receives and cancels in random order.
func withdrawModel(t *rapid.T, p *ucppair.Pair) {
	var sends, receives []*ucp.Request
	var bufs [][]byte
	send := func() {
		if len(sends) < 8 {
			sends = append(sends, announceTag(p, testenv.Pattern(tlsets.LongMessage, len(sends))))
		}
	}
	receive := func() {
		if len(receives) < 8 {
			bufs = append(bufs, make([]byte, tlsets.LongMessage))
			r, err := p.B.W.TagRecv(bufs[len(bufs)-1], 1, exact, nil, nil)
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
			p.A.W.Progress()
		case what < 9:
			p.B.W.Progress()
		case len(sends) > 0:
			sends[rapid.IntRange(0, len(sends)-1).Draw(t, "which")].Cancel()
		}
	}
	for _, r := range sends { // messages without a receive must not remain for the next case
		r.Cancel()
	}
	var came []int
	for i, r := range sends {
		switch err := p.Finish(r, nil); {
		case err == nil:
			came = append(came, i)
		case !errors.Is(err, ucs.ErrCanceled):
			t.Fatal(err)
		}
	}
	for i, r := range receives {
		if i < len(came) {
			require.NoError(t, p.Finish(r, nil))
			assert.Equal(t, testenv.Pattern(tlsets.LongMessage, came[i]), bufs[i])
			continue
		}
		require.True(t, r.Cancel(), "no message is left for it")
		r.Release()
	}
	require.LessOrEqual(t, len(came), len(receives))
	require.NoError(t, p.A.EP.Err())
}
