package ucp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucs"
)

// canceled cancels a message of which nothing was posted.
func canceled(t *testing.T, r *Request) {
	t.Helper()
	require.True(t, r.Cancel())
	require.ErrorIs(t, r.take(), ucs.ErrCanceled)
}

// TestMessages_CancelReturnsCredit: a canceled message returns its credit.
func TestMessages_CancelReturnsCredit(t *testing.T) {
	p, f := fakePair(t, Config{}, faketp.LikeTCP())
	p.grown()
	credit := p.a.ep.msgs.Credit
	f.Ifaces[0].Stuck = true
	for _, n := range []int{1, 1000, 5000, 20000} {
		r, err := p.a.ep.SendActive(1, nil, make([]byte, n), nil)
		require.NoError(t, err)
		require.Less(t, p.a.ep.msgs.Credit, credit)
		canceled(t, r)
		require.Equal(t, credit, p.a.ep.msgs.Credit, "after %d bytes", n)
	}
	f.Ifaces[0].Stuck = false
	p.idle()
}

// TestMessages_CancelUnblocksOthers: when a message that waits for credit is canceled, later messages that have enough
// credit are sent.
func TestMessages_CancelUnblocksOthers(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeTCP())
	p.grown()
	p.a.ep.msgs.Credit = charge(100) - window.Reserve(p.a.ep.msgs.Most)
	long, err := p.a.ep.SendActive(1, make([]byte, 1000), nil, nil)
	require.NoError(t, err)
	require.NotNil(t, long, "there is no credit for an RTS with its header")
	short, err := p.a.ep.TagSend(1, pattern(100, 1), nil)
	require.NoError(t, err)
	require.NotNil(t, short)
	canceled(t, long)
	buf := make([]byte, 100)
	require.NoError(t, p.finish(p.b.w.TagRecv(buf, 1, exact, nil, nil)))
	require.NoError(t, p.finish(short, nil))
	requireBytes(t, pattern(100, 1), buf)
}

// refusedSizes are lengths of messages that are sent in one fragment, in several, and by rendezvous.
var refusedSizes = []int{100, 5000, 100_000}

// TestMessages_RejectedHeader: a header that is too long for the transport is rejected with both lengths.
func TestMessages_RejectedHeader(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeTCP())
	p.grown()
	const room = faketp.MaxAM - 48
	credit := p.a.ep.msgs.Credit
	for _, n := range refusedSizes {
		_, err := p.a.ep.SendActive(1, make([]byte, room+1), make([]byte, n), nil)
		require.ErrorIs(t, err, ucs.ErrTooLong)
		require.ErrorContains(t, err, "a header of 2001 bytes, 2000 fit")
		_, err = p.a.ep.SendActiveData(1, make([]byte, room+1), Buffers(pieces(make([]byte, n))), nil)
		require.ErrorIs(t, err, ucs.ErrTooLong)
		require.Equal(t, credit, p.a.ep.msgs.Credit)
		var got []byte
		p.b.w.OnActive(1, func(m *ActiveMessage) { got = append(got, m.Header...) })
		r, err := p.a.ep.SendActive(1, pattern(room, n), make([]byte, n), nil)
		require.NoError(t, err)
		p.until(func() bool { return len(got) > 0 })
		require.NoError(t, p.finish(r, nil))
		requireBytes(t, pattern(room, n), got)
		p.until(func() bool { return p.a.ep.msgs.Credit > firstWindow })
		credit = p.a.ep.msgs.Credit
	}
}

// TestMessages_RejectedReturnsCredit: a message for which the transport has no resources when it is posted returns its credit.
func TestMessages_RejectedReturnsCredit(t *testing.T) {
	for _, n := range refusedSizes {
		p, f := fakePair(t, Config{}, faketp.LikeTCP())
		p.connect()
		f.Ifaces[0].Attr().AM.MaxBcopy = 2 * faketp.MaxAM
		r, err := p.a.ep.SendActive(1, make([]byte, MaxActiveHeader), make([]byte, n), nil)
		require.NoError(t, err)
		f.Ifaces[0].Attr().AM.MaxBcopy = faketp.MaxAM
		require.Error(t, p.finish(r, nil))
		require.EqualValues(t, firstWindow, p.a.ep.msgs.Credit, "%d bytes", n)
		require.NoError(t, p.a.ep.Err())
	}
}
