package ucp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
)

// blockedPair is a pair whose a has sent messages with tag orderJunk until it had no more credit.
func blockedPair(t *testing.T, cfg Config) *pair {
	p := newPair(t, faketp.Set("like sm", faketp.LikeSM()), cfg).grown()
	for i := 0; p.a.ep.waiting.messages() < 3; i++ {
		r, err := p.a.ep.TagSend(orderJunk, nil, nil)
		require.NoError(t, err)
		r.Release()
		if i%16 == 0 {
			p.step()
		}
	}
	p.idle()
	return p
}

// TestOrder_SenderEnds: the EP of a blocked sender, or that of the receiver, closes while a query or an offer is in
// flight. The receive remains posted, and matches a message of another sender.
func TestOrder_SenderEnds(t *testing.T) {
	testenv.SkipRace(t, oneGoroutine)
	for steps := range 8 {
		for _, mode := range []CloseMode{CloseFlush, CloseForce} {
			for _, which := range []string{"sender", "receiver"} {
				t.Run(fmt.Sprintf("%s closes after %d steps, mode %d", which, steps, mode), func(t *testing.T) {
					p := blockedPair(t, Config{})
					sent, err := p.a.ep.TagSend(1, pattern(20_000, 1), nil)
					require.NoError(t, err)
					buf := make([]byte, 20_000)
					var info TagInfo
					recv, err := p.b.w.TagRecv(buf, 1, exact, &info, nil)
					require.NoError(t, err)
					for i := range steps {
						[]*Worker{p.b.w, p.a.w}[i%2].Progress()
					}
					e := p.a.ep
					if which == "receiver" {
						e = p.b.w.eps.Find(p.a.ep.link.conn.RemoteEP())
					}
					closed, err := e.Close(mode)
					require.NoError(t, err)
					if mode == CloseFlush && which == "sender" { // it waits for its messages
						require.NoError(t, p.finish(recv, nil))
						requireBytes(t, pattern(20_000, 1), buf)
						require.NoError(t, p.finish(sent, nil))
						require.Equal(t, uint64(1), info.Tag)
						closed.Release()
						return
					}
					require.NoError(t, p.finish(closed, nil))
					p.until(sent.Done)
					sent.Release()
					p.idle()
					require.Empty(t, p.b.w.tag.blocked)
					if recv.Done() { // it has received the message, or has failed with the EP
						recv.Release()
						return
					}
					other, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
					require.NoError(t, err)
					require.NoError(t, p.finish(other.TagSend(1, buf[:5], nil)))
					require.NoError(t, p.finish(recv, nil))
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
	p := blockedPair(t, Config{})
	handled := false
	p.b.w.OnActive(3, func(*ActiveMessage) { handled = true })
	first, err := p.a.ep.TagSend(1, nil, nil)
	require.NoError(t, err)
	active, err := p.a.ep.SendActive(3, nil, nil, nil)
	require.NoError(t, err)
	second, err := p.a.ep.TagSend(2, nil, nil)
	require.NoError(t, err)
	behind, err := p.b.w.TagRecv(nil, 2, exact, nil, nil)
	require.NoError(t, err)
	require.NoError(t, p.finish(p.b.w.TagRecv(nil, 1, exact, nil, nil)))
	require.NoError(t, p.finish(first, nil))
	p.idle()
	require.False(t, behind.Done() || handled)
	for !handled { // credit for the active message
		require.NoError(t, p.finish(p.b.w.TagRecv(nil, orderJunk, exact, nil, nil)))
		p.idle()
		require.False(t, behind.Done() && !handled)
	}
	require.NoError(t, p.finish(behind, nil))
	require.NoError(t, p.finish(active, nil))
	require.NoError(t, p.finish(second, nil))
}

// TestOrder_CancelOffered: an offered message cannot be canceled before the receiver has replied. If the receiver
// rejects the offer, the message is canceled.
func TestOrder_CancelOffered(t *testing.T) {
	for _, returned := range []bool{false, true} {
		t.Run(fmt.Sprint("returned ", returned), func(t *testing.T) {
			p := blockedPair(t, Config{})
			sent, err := p.a.ep.TagSend(1, []byte("data"), nil)
			require.NoError(t, err)
			buf := make([]byte, 4)
			recv, err := p.b.w.TagRecv(buf, 1, exact, nil, nil)
			require.NoError(t, err)
			p.until(sent.isOffered)
			require.False(t, sent.Cancel())
			if returned {
				require.True(t, recv.Cancel())
				require.ErrorIs(t, p.finish(recv, nil), ucs.ErrCanceled)
				require.ErrorIs(t, p.finish(sent, nil), ucs.ErrCanceled)
				return
			}
			require.NoError(t, p.finish(recv, nil))
			require.NoError(t, p.finish(sent, nil))
			require.Equal(t, "data", string(buf))
		})
	}
}

// TestOrder_HostileReceiver: a peer that sends queries without end, and never replies to an offer, has one message
// offered and one reply at a time.
func TestOrder_HostileReceiver(t *testing.T) {
	p := blockedPair(t, Config{})
	w, e := p.a.w, p.a.ep
	requests := w.pool.made
	for i := range 1000 {
		q := wire.Query{EP: e.id, Number: uint32(i + 1), Kind: wire.QueryKind(i % 4), Returned: i%3 == 0, Tag: orderJunk, Mask: exact, Limit: 1 << 40}
		w.handleQuery(q.Append(nil), nil)
		require.LessOrEqual(t, e.link.answers, 1)
	}
	require.Less(t, w.pool.made-requests, 64, "requests for replies")
	p.idle()
}

// TestOrder_HostileSender: offers and replies without a query are counted and dropped.
func TestOrder_HostileSender(t *testing.T) {
	p := blockedPair(t, Config{})
	w := p.b.w
	e := w.eps.Find(p.a.ep.link.conn.RemoteEP())
	refused := func(b []byte, handle func() bool) {
		t.Helper()
		bad := w.stats.badMessages.Load()
		handle()
		require.Equal(t, bad+1, w.stats.badMessages.Load())
	}
	for number := range uint32(3) {
		o := wire.Offer{EP: e.id, Query: number, Message: 1, Tag: 5}
		b := (&wire.RTS{ID: 1, Length: 10}).Append(o.Append(nil))
		refused(b, func() bool { return w.handleOffer(b, nil) })
		b = (&wire.Reply{EP: e.id, Number: number + 1, Kind: wire.ReplyNone, Value: 1}).Append(nil)
		refused(b, func() bool { return w.handleReply(b, nil) })
	}
	recv, err := w.TagRecv(nil, 5, exact, nil, nil)
	require.NoError(t, err)
	o := wire.Offer{EP: e.id, Query: e.msgs.tag.sender.query.Number, Message: 1, Tag: 6} // does not fit
	b := (&wire.RTS{ID: 1, Length: 10}).Append(o.Append(nil))
	refused(b, func() bool { return w.handleOffer(b, nil) })
	require.True(t, recv.Cancel())
	recv.Release()
	p.idle()
}
