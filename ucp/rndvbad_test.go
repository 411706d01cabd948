package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucp/internal/wire"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// forged is a message that a hostile peer may send, with its handler.
type forged struct {
	name   string
	handle func(data []byte, _ uct.Desc) bool
	msg    []byte
}

// takesNone checks that each message is counted and has no other effect.
func takesNone(t *testing.T, w *ucp.Worker, msgs []forged) {
	t.Helper()
	for _, m := range msgs {
		before := w.BadMessages().Load()
		assert.False(t, m.handle(m.msg, nil))
		assert.Equal(t, before+1, w.BadMessages().Load(), m.name)
	}
}

func frag(ep, id, off uint64, n int) []byte {
	f := wire.Frag{EP: ep, ID: id, Offset: off}
	return append(f.Append(nil), make([]byte, n)...)
}

func control(ep, id uint64, st ucs.Status) []byte {
	c := wire.Control{EP: ep, ID: id, Value: uint64(st)}
	return c.Append(nil)
}

// TestRndv_ForgedToReceiver: messages for a receive other than the announced one, or with more data, change nothing.
func TestRndv_ForgedToReceiver(t *testing.T) {
	for _, scheme := range tlsets.RndvSchemes[1:] {
		t.Run(scheme, func(t *testing.T) {
			p := newRndvPair(t, faketp.Set("like sm", faketp.LikeSM()), scheme)
			sent := p.send(tlsets.LongMessage, 1)
			m := p.announcement()
			e, w := m.From, p.B.W
			p.B.Dial(t, &p.A) // adopts the connection of e
			require.Same(t, e, p.B.EP)
			other, err := w.NewEP(p.A.W.Address(), ucp.EPConfig{})
			require.NoError(t, err)
			require.NoError(t, p.Finish(other.Put([]byte{1}, p.A.Mem.Addr(), mustUnpack(t, other, p.A.Mem), nil)))
			recv := p.recv(m, p.to.Bytes())
			name, data, ack := recv.RemoteID(), w.Handler(wire.AMData), w.Handler(wire.AMAck)
			putDone := w.Handler(wire.AMPutDone)
			bad := []forged{
				{"no fragment", data, nil},
				{"data for another EP", data, frag(other.ID(), name, 0, 1)},
				{"data for no EP", data, frag(e.ID()+77, name, 0, 1)},
				{"data for no receive", data, frag(e.ID(), name+77, 0, 1)},
				{"data for name 0", data, frag(e.ID(), 0, 0, 1)},
				{"a gap", data, frag(e.ID(), name, 1, 1)},
				{"a great offset", data, frag(e.ID(), name, ^uint64(0), 1)},
				{"too much", data, frag(e.ID(), name, 0, tlsets.LongMessage+1)},
				{"an acknowledgement of a receive", ack, control(e.ID(), name, 0)},
				{"the end of a put for another EP", putDone, control(other.ID(), name, 0)},
			}
			if scheme != "put_zcopy" {
				bad = append(bad, forged{"the end of a put that there is none of", putDone, control(e.ID(), name, 0)})
			}
			takesNone(t, w, bad)
			require.False(t, recv.Done())
			require.NoError(t, p.Finish(recv, nil))
			require.NoError(t, p.Finish(sent, nil))
			testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
			takesNone(t, w, []forged{{"data after the end", data, frag(e.ID(), name, 0, 1)}})
		})
	}
}

func mustUnpack(t *testing.T, e *ucp.EP, m *ucp.Mem) *ucp.RKey {
	t.Helper()
	key, err := e.Unpack(m.Pack())
	require.NoError(t, err)
	t.Cleanup(key.Close)
	return key
}

// TestRndv_ForgedToSender: replies about a message of another connection, or for bytes beyond the end, change nothing.
// If the key of an RTR is invalid, the data is sent in fragments.
func TestRndv_ForgedToSender(t *testing.T) {
	p := newRndvPair(t, faketp.Set("like sm", faketp.LikeSM()), "am")
	sent := p.send(tlsets.LongMessage, 1)
	m := p.announcement()
	e, w, name := p.A.EP, p.A.W, sent.RemoteID()
	other, err := w.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	require.NoError(t, p.Finish(other.Put([]byte{1}, p.B.Mem.Addr(), mustUnpack(t, other, p.B.Mem), nil)))
	rtr := func(m wire.RTR) []byte { return m.Append(nil) }
	takesNone(t, w, []forged{
		{"nothing", w.Handler(wire.AMRTR), nil},
		{"of another EP", w.Handler(wire.AMRTR), rtr(wire.RTR{EP: other.ID(), ID: name, Recv: 1, Length: 1})},
		{"of no EP", w.Handler(wire.AMRTR), rtr(wire.RTR{EP: e.ID() + 77, ID: name, Recv: 1, Length: 1})},
		{"of no message", w.Handler(wire.AMRTR), rtr(wire.RTR{EP: e.ID(), ID: name + 77, Recv: 1, Length: 1})},
		{"beyond the end", w.Handler(wire.AMRTR), rtr(wire.RTR{EP: e.ID(), ID: name, Recv: 1, Length: tlsets.LongMessage + 1})},
		{"far beyond the end", w.Handler(wire.AMRTR), rtr(wire.RTR{EP: e.ID(), ID: name, Recv: 1, Length: ^uint64(0)})},
		{"data", w.Handler(wire.AMData), frag(e.ID(), name, 0, 1)},
		{"the end of a put", w.Handler(wire.AMPutDone), control(e.ID(), name, 0)},
	})
	require.False(t, sent.Done())
	recv := p.recv(m, p.to.Bytes())
	require.NoError(t, p.Finish(recv, nil))
	require.NoError(t, p.Finish(sent, nil))
	testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
	takesNone(t, w, []forged{
		{"a second RTR", w.Handler(wire.AMRTR), rtr(wire.RTR{EP: e.ID(), ID: name, Recv: 1, Length: 1})},
		{"an acknowledgement after the end", w.Handler(wire.AMAck), control(e.ID(), name, 0)},
	})
}

// TestRndv_ForgedAnnouncements: invalid announcements are counted. If the key does not permit access to the data, the
// data is sent in fragments.
func TestRndv_ForgedAnnouncements(t *testing.T) {
	p := newRndvPair(t, faketp.Set("like sm", faketp.LikeSM()), "auto")
	sent := p.send(tlsets.LongMessage, 1)
	m := p.announcement()
	w, e := p.B.W, m.From
	rts := func(head wire.Head, rts wire.RTS, rest ...byte) []byte {
		head.EP = e.ID()
		return append(rts.Append(head.Append(nil)), rest...)
	}
	active, tag := w.Handler(wire.AMActiveRTS), w.Handler(wire.AMTagRTS)
	takesNone(t, w, []forged{
		{"nothing", active, nil},
		{"no tag", tag, nil},
		{"no name", active, rts(wire.Head{Word: 1}, wire.RTS{Length: 1})},
		{"no name of a tagged message", tag, rts(wire.Head{Word: 1}, wire.RTS{Length: 1})},
		{"too long", active, rts(wire.Head{Word: 1}, wire.RTS{ID: 1, Length: ucp.MaxMessage + 1})},
		{"a tagged message that is too long", tag, rts(wire.Head{Word: 1}, wire.RTS{ID: 1, Length: ^uint64(0)})},
		{"a header too short", active, rts(wire.Head{Word: 1 | 5<<32}, wire.RTS{ID: 1, Length: 1}, 1)},
		{"something behind a tag", tag, rts(wire.Head{Word: 1}, wire.RTS{ID: 1, Length: 1}, 1)},
	})
	*m.RemoteAddr() += 4 // the last 4 bytes are not in the region
	recv := p.recv(m, p.to.Bytes())
	require.NoError(t, p.Finish(recv, nil))
	require.NoError(t, p.Finish(sent, nil))
	testenv.RequireBytes(t, p.from.Bytes(), p.to.Bytes())
	require.NoError(t, p.A.EP.Err())
}

// TestRndv_GivenUp: a canceled receive does not use its buffer any more while the peer sends, puts, or is read.
func TestRndv_GivenUp(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		sent := p.send(tlsets.LongMessage, 1)
		p.B.W.LimitBufferWait(testenv.Watchdog)
		m := p.announcement()
		recv := p.recv(m, p.to.Bytes())
		for range 2 {
			p.Step()
		}
		if recv != nil {
			recv.AbandonWith(func(_ context.Context, back func() bool) error {
				p.Until(back)
				return nil
			})
		}
		clear(p.to.Bytes())
		require.NoError(t, p.Finish(sent, nil))
		p.Until(func() bool { return ucp.RequestsInUse(p.B.W) == 0 })
		testenv.RequireZero(t, p.to.Bytes(), "written after the receive was given up")
	})
}

// TestRndv_PeerFails: a rendezvous fails because the lane of its data broke at the peer, or for the request that puts
// the data. The message fails, and the EP continues.
func TestRndv_PeerFails(t *testing.T) {
	for _, st := range []ucs.Status{ucs.StatusTimedOut, ucs.StatusRNR, ucs.StatusConnReset} {
		p := newRndvPair(t, faketp.Set("like rc+ud", faketp.LikeRC(), faketp.LikeUD()), "get_zcopy")
		sent := p.send(tlsets.LongMessage, 1)
		m := p.announcement()
		ack := p.A.W.Handler(wire.AMAck)
		ack(control(p.A.EP.ID(), sent.RemoteID(), st), nil)
		require.ErrorIs(t, p.Finish(sent, nil), st.Err())
		require.NoError(t, p.A.EP.Err())
		m.Release()
	}
}
