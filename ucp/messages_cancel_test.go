package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/window"
	"github.com/gucx/gucx/ucs"
)

// canceled cancels a message of which nothing was posted.
func canceled(t *testing.T, r *ucp.Request) {
	t.Helper()
	require.True(t, r.Cancel())
	require.ErrorIs(t, r.Take(), ucs.ErrCanceled)
}

// TestMessages_CancelReturnsCredit: a canceled message returns its credit.
func TestMessages_CancelReturnsCredit(t *testing.T) {
	p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeTCP())
	growWindow(p)
	credit := p.A.EP.Messages().Credit
	f.Ifaces[0].Stuck = true
	for _, n := range []int{1, 1000, 5000, 20000} {
		r, err := p.A.EP.SendActive(1, nil, make([]byte, n), nil)
		require.NoError(t, err)
		require.Less(t, p.A.EP.Messages().Credit, credit)
		canceled(t, r)
		require.Equal(t, credit, p.A.EP.Messages().Credit, "after %d bytes", n)
	}
	f.Ifaces[0].Stuck = false
	idle(p)
}

// TestMessages_CancelUnblocksOthers: when a message that waits for credit is canceled, later messages that have enough
// credit are sent.
func TestMessages_CancelUnblocksOthers(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeTCP())
	growWindow(p)
	p.A.EP.Messages().Credit = window.Charge(100) - window.Reserve(p.A.EP.Messages().Most)
	long, err := p.A.EP.SendActive(1, make([]byte, 1000), nil, nil)
	require.NoError(t, err)
	require.NotNil(t, long, "there is no credit for an RTS with its header")
	short, err := p.A.EP.TagSend(1, testenv.Pattern(100, 1), nil)
	require.NoError(t, err)
	require.NotNil(t, short)
	canceled(t, long)
	buf := make([]byte, 100)
	require.NoError(t, p.Finish(p.B.W.TagRecv(buf, 1, exact, nil, nil)))
	require.NoError(t, p.Finish(short, nil))
	testenv.RequireBytes(t, testenv.Pattern(100, 1), buf)
}

// refusedSizes are lengths of messages that are sent in one fragment, in several, and by rendezvous.
var refusedSizes = []int{100, 5000, 100_000}

// TestMessages_RejectedHeader: a header that is too long for the transport is rejected with both lengths.
func TestMessages_RejectedHeader(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeTCP())
	growWindow(p)
	const room = faketp.MaxAM - 48
	credit := p.A.EP.Messages().Credit
	for _, n := range refusedSizes {
		_, err := p.A.EP.SendActive(1, make([]byte, room+1), make([]byte, n), nil)
		require.ErrorIs(t, err, ucs.ErrTooLong)
		require.ErrorContains(t, err, "a header of 2001 bytes, 2000 fit")
		_, err = p.A.EP.SendActiveData(1, make([]byte, room+1), ucp.Buffers(pieces(make([]byte, n))), nil)
		require.ErrorIs(t, err, ucs.ErrTooLong)
		require.Equal(t, credit, p.A.EP.Messages().Credit)
		var got []byte
		p.B.W.OnActive(1, func(m *ucp.ActiveMessage) { got = append(got, m.Header...) })
		r, err := p.A.EP.SendActive(1, testenv.Pattern(room, n), make([]byte, n), nil)
		require.NoError(t, err)
		p.Until(func() bool { return len(got) > 0 })
		require.NoError(t, p.Finish(r, nil))
		testenv.RequireBytes(t, testenv.Pattern(room, n), got)
		p.Until(func() bool { return p.A.EP.Messages().Credit > ucp.FirstWindow })
		credit = p.A.EP.Messages().Credit
	}
}

// TestMessages_RejectedReturnsCredit: a message for which the transport has no resources when it is posted returns its credit.
func TestMessages_RejectedReturnsCredit(t *testing.T) {
	for _, n := range refusedSizes {
		p, f := ucppair.Fake(t, ucp.Config{}, faketp.LikeTCP())
		p.Connect()
		f.Ifaces[0].Attr().AM.MaxBcopy = 2 * faketp.MaxAM
		r, err := p.A.EP.SendActive(1, make([]byte, ucp.MaxActiveHeader), make([]byte, n), nil)
		require.NoError(t, err)
		f.Ifaces[0].Attr().AM.MaxBcopy = faketp.MaxAM
		require.Error(t, p.Finish(r, nil))
		require.EqualValues(t, ucp.FirstWindow, p.A.EP.Messages().Credit, "%d bytes", n)
		require.NoError(t, p.A.EP.Err())
	}
}
