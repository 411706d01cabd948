package ucp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// blockedPair is a pair whose a has sent messages with tag orderJunk until it had no more credit.
func blockedPair(t *testing.T, cfg ucp.Config) *ucppair.Pair {
	p := growWindow(ucppair.New(t, faketp.Set("like sm", faketp.LikeSM()), cfg))
	for i := 0; p.A.EP.WaitingMessages() < 3; i++ {
		r, err := p.A.EP.TagSend(orderJunk, nil, nil)
		require.NoError(t, err)
		r.Release()
		if i%16 == 0 {
			p.Step()
		}
	}
	idle(p)
	return p
}

// TestOrder_SenderEnds: the EP of a blocked sender, or that of the receiver, closes while a query or an offer is in
// flight. The receive remains posted, and matches a message of another sender.
func TestOrder_SenderEnds(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for steps := range 8 {
		for _, mode := range []ucp.CloseMode{ucp.CloseFlush, ucp.CloseForce} {
			for _, which := range []string{"sender", "receiver"} {
				t.Run(fmt.Sprintf("%s closes after %d steps, mode %d", which, steps, mode), func(t *testing.T) {
					p := blockedPair(t, ucp.Config{})
					sent, err := p.A.EP.TagSend(1, testenv.Pattern(20_000, 1), nil)
					require.NoError(t, err)
					buf := make([]byte, 20_000)
					var info ucp.TagInfo
					recv, err := p.B.W.TagRecv(buf, 1, exact, &info, nil)
					require.NoError(t, err)
					for i := range steps {
						[]*ucp.Worker{p.B.W, p.A.W}[i%2].Progress()
					}
					e := p.A.EP
					if which == "receiver" {
						e = p.B.W.EPs().Find(p.A.EP.Handshake().RemoteEP())
					}
					closed, err := e.Close(mode)
					require.NoError(t, err)
					if mode == ucp.CloseFlush && which == "sender" { // it waits for its messages
						require.NoError(t, p.Finish(recv, nil))
						testenv.RequireBytes(t, testenv.Pattern(20_000, 1), buf)
						require.NoError(t, p.Finish(sent, nil))
						require.Equal(t, uint64(1), info.Tag)
						closed.Release()
						return
					}
					require.NoError(t, p.Finish(closed, nil))
					p.Until(sent.Done)
					sent.Release()
					idle(p)
					blocked, _ := p.B.W.BlockedSenders()
					require.Zero(t, blocked)
					if recv.Done() { // it has received the message, or has failed with the EP
						recv.Release()
						return
					}
					other, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
					require.NoError(t, err)
					require.NoError(t, p.Finish(other.TagSend(1, buf[:5], nil)))
					require.NoError(t, p.Finish(recv, nil))
					require.Equal(t, 5, info.Length)
				})
			}
		}
	}
}

// TestOrder_ActiveMessagesKeepTheirOrder: a tagged message does not overtake an active message or a fence that was
// posted before.
func TestOrder_ActiveMessagesKeepTheirOrder(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	p := blockedPair(t, ucp.Config{})
	handled := false
	p.B.W.OnActive(3, func(*ucp.ActiveMessage) { handled = true })
	first, err := p.A.EP.TagSend(1, nil, nil)
	require.NoError(t, err)
	active, err := p.A.EP.SendActive(3, nil, nil, nil)
	require.NoError(t, err)
	second, err := p.A.EP.TagSend(2, nil, nil)
	require.NoError(t, err)
	behind, err := p.B.W.TagRecv(nil, 2, exact, nil, nil)
	require.NoError(t, err)
	require.NoError(t, p.Finish(p.B.W.TagRecv(nil, 1, exact, nil, nil)))
	require.NoError(t, p.Finish(first, nil))
	idle(p)
	require.False(t, behind.Done() || handled)
	for !handled { // credit for the active message
		require.NoError(t, p.Finish(p.B.W.TagRecv(nil, orderJunk, exact, nil, nil)))
		idle(p)
		require.False(t, behind.Done() && !handled)
	}
	require.NoError(t, p.Finish(behind, nil))
	require.NoError(t, p.Finish(active, nil))
	require.NoError(t, p.Finish(second, nil))
}

// TestOrder_CancelOffered: an offered message cannot be canceled before the receiver has replied. If the receiver
// rejects the offer, the message is canceled.
func TestOrder_CancelOffered(t *testing.T) {
	for _, returned := range []bool{false, true} {
		t.Run(fmt.Sprint("returned ", returned), func(t *testing.T) {
			p := blockedPair(t, ucp.Config{})
			sent, err := p.A.EP.TagSend(1, []byte("data"), nil)
			require.NoError(t, err)
			buf := make([]byte, 4)
			recv, err := p.B.W.TagRecv(buf, 1, exact, nil, nil)
			require.NoError(t, err)
			p.Until(sent.Offered)
			require.False(t, sent.Cancel())
			if returned {
				require.True(t, recv.Cancel())
				require.ErrorIs(t, p.Finish(recv, nil), ucs.ErrCanceled)
				require.ErrorIs(t, p.Finish(sent, nil), ucs.ErrCanceled)
				return
			}
			require.NoError(t, p.Finish(recv, nil))
			require.NoError(t, p.Finish(sent, nil))
			require.Equal(t, "data", string(buf))
		})
	}
}

// TestOrder_HostileReceiver: a peer that sends queries without end, and never replies to an offer, has one message
// offered and one reply at a time.
func TestOrder_HostileReceiver(t *testing.T) {
	for _, proto := range []string{"", "tupleq"} {
		t.Run("TAG_PROTO="+proto, func(t *testing.T) { testHostileReceiver(t, ucp.Config{TagProto: proto}) })
	}
}

func testHostileReceiver(t *testing.T, cfg ucp.Config) {
	p := blockedPair(t, cfg)
	w, e := p.A.W, p.A.EP
	requests := w.RequestsMade()
	for i := range 1000 {
		q := wire.Query{EP: e.ID(), Number: uint32(i + 1), Kind: wire.QueryKind(i % 4), Returned: i%3 == 0, Tag: orderJunk, Mask: exact, Limit: 1 << 40}
		w.Handler(wire.AMQuery)(q.Append(nil), nil)
		require.LessOrEqual(t, e.PendingReplies(), 1)
	}
	require.Less(t, w.RequestsMade()-requests, 64, "requests for replies")
	idle(p)
}

// TestOrder_HostileSender: offers and replies without a query are counted and dropped.
func TestOrder_HostileSender(t *testing.T) {
	for _, proto := range []string{"", "tupleq"} {
		t.Run("TAG_PROTO="+proto, func(t *testing.T) { testHostileSender(t, ucp.Config{TagProto: proto}) })
	}
}

func testHostileSender(t *testing.T, cfg ucp.Config) {
	p := blockedPair(t, cfg)
	w := p.B.W
	e := w.EPs().Find(p.A.EP.Handshake().RemoteEP())
	refused := func(b []byte, handle func() bool) {
		t.Helper()
		bad := w.BadMessages().Load()
		handle()
		require.Equal(t, bad+1, w.BadMessages().Load())
	}
	for number := range uint32(3) {
		o := wire.Offer{EP: e.ID(), Query: number, Message: 1, Tag: 5}
		b := (&wire.RTS{ID: 1, Length: 10}).Append(o.Append(nil))
		refused(b, func() bool { return w.Handler(wire.AMOffer)(b, nil) })
		b = (&wire.Reply{EP: e.ID(), Number: number + 1, Kind: wire.ReplyNone, Value: 1}).Append(nil)
		refused(b, func() bool { return w.Handler(wire.AMReply)(b, nil) })
	}
	recv, err := w.TagRecv(nil, 5, exact, nil, nil)
	require.NoError(t, err)
	o := wire.Offer{EP: e.ID(), Query: e.Messages().Query().Number, Message: 1, Tag: 6} // does not fit
	b := (&wire.RTS{ID: 1, Length: 10}).Append(o.Append(nil))
	refused(b, func() bool { return w.Handler(wire.AMOffer)(b, nil) })
	require.True(t, recv.Cancel())
	recv.Release()
	idle(p)
}
