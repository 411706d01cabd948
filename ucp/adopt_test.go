package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// TestNewEP_AdoptedUsedAndClosedByThePeer: an EP that took over the peer's connection, over which
// messages went, and over which its user has sent one, fails when the peer closes its EP: what
// was sent may be lost.
func TestNewEP_AdoptedUsedAndClosedByThePeer(t *testing.T) {
	for name, use := range map[string]func(p *pair, ep *EP) error{
		"tag":    func(p *pair, ep *EP) error { return p.finish(ep.TagSend(1, []byte{1}, nil)) },
		"active": func(p *pair, ep *EP) error { return p.finish(ep.SendActive(9, nil, []byte{1}, nil)) },
		"stream": func(p *pair, ep *EP) error { return p.finish(ep.StreamSend([]byte{1}, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, p *pair) {
				if p.oneself() {
					t.Skip("takes over none")
				}
				var from *EP
				p.b.w.OnActive(1, func(m *ActiveMessage) {
					from = m.From
					assert.NoError(t, letGo(from.SendActive(1, nil, []byte{1}, nil)))
				})
				p.connect()
				require.NoError(t, p.finish(p.a.ep.SendActive(1, nil, []byte{1}, nil)))
				p.until(func() bool { return from != nil && from.ops.first == nil })
				ep, err := p.b.w.NewEP(p.a.w.Address(), EPConfig{})
				require.NoError(t, err)
				require.Same(t, from, ep)
				require.NoError(t, use(p, ep))
				require.NoError(t, p.finish(ep.Flush()))
				require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
				p.until(func() bool { return ep.Err() != nil })
				assert.ErrorIs(t, ep.Err(), ucs.ErrPeerClosed)
			})
		})
	}
}

// TestMessages_LaneOfPuts: messages go out in one call over a lane that puts have made.
func TestMessages_LaneOfPuts(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		require.NoError(t, p.finish(p.a.ep.TagSend(1, []byte{1}, nil)))
		p.until(func() bool { return p.b.w.tags.Unexpected() == 1 })
		assert.Equal(t, p.a.ep.lane(wireup.AM) != nil, p.a.ep.msgs.maxCopy >= 0)
	})
}

// elsewhere is the address of c with the name of w.
func elsewhere(t *testing.T, w, c *Worker) []byte {
	t.Helper()
	addr := *c.addr
	addr.UUID = w.addr.UUID
	packed, err := addr.Pack()
	require.NoError(t, err)
	return packed
}

// TestNewEP_Impostor: a worker that says it has another one's name gets no EP which was made with
// that one's address, before or after that, and does not keep it from connecting.
func TestNewEP_Impostor(t *testing.T) {
	for _, first := range []bool{true, false} {
		p, _ := fakePair(t, Config{}, likeRC(), likeUD())
		bad, err := p.a.ctx.NewWorker(WorkerConfig{})
		require.NoError(t, err)
		defer func() { require.NoError(t, bad.Close()) }()
		forged := &wireup.Msg{
			Type: wireup.Request, SrcUUID: p.a.w.addr.UUID, DstUUID: p.b.w.addr.UUID, SrcEP: 1,
			Addr:  elsewhere(t, p.a.w, bad),
			Lanes: []wireup.MsgLane{{Roles: wireup.Set(wireup.RMA), EPAddr: []byte{0, 0}}},
		}
		forge := func() {
			p.b.w.handleWireup(forged.Append(nil), nil)
			for range 10 {
				bad.Progress()
				p.b.w.Progress()
			}
		}
		if first {
			forge()
			require.Equal(t, 1, p.b.w.eps.Len())
		}
		p.b.dial(t, &p.a)
		require.True(t, p.b.ep.peer.Is(p.a.w.Address()))
		if !first {
			forge()
		}
		require.Nil(t, p.b.ep.link, "it is not the one that came")
		require.NoError(t, p.finish(p.b.ep.Put([]byte{7}, p.a.mem.Addr(), p.b.key, nil)))
		require.NoError(t, p.finish(p.b.ep.Flush()))
		assert.Equal(t, byte(7), p.a.mem.Bytes()[0])
		p.connect().warm()
	}
}

// TestNewEP_AddressWithMore: what follows in an address does no harm, and leaves nothing behind.
func TestNewEP_AddressWithMore(t *testing.T) {
	p, _ := fakePair(t, Config{}, likeRC(), likeUD())
	p.connect().warm()
	for i := range 3 {
		ep, err := p.b.w.NewEP(append(p.a.w.Address(), byte(i)), EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.finish(ep.Close(CloseFlush)))
	}
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	p.until(func() bool { return p.b.w.eps.Len() == 0 })
	assert.Zero(t, p.b.w.peers.Len())
}
