package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// TestNewEP_AdoptedUsedAndClosedByThePeer: NewEP adopts the connection of the peer, over which messages have arrived,
// and the user sends one. If the peer closes its EP, the adopted EP fails, because the message may be lost.
func TestNewEP_AdoptedUsedAndClosedByThePeer(t *testing.T) {
	for name, use := range map[string]func(p *pair, ep *EP) error{
		"tag":    func(p *pair, ep *EP) error { return p.finish(ep.TagSend(1, []byte{1}, nil)) },
		"active": func(p *pair, ep *EP) error { return p.finish(ep.SendActive(9, nil, []byte{1}, nil)) },
		"stream": func(p *pair, ep *EP) error { return p.finish(ep.StreamSend([]byte{1}, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, p *pair) {
				if p.oneself() {
					t.Skip("adopts no connection")
				}
				var from *EP
				p.b.w.OnActive(1, func(m *ActiveMessage) {
					from = m.From
					assert.NoError(t, releaseRequest(from.SendActive(1, nil, []byte{1}, nil)))
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

// TestMessages_LaneOfPuts: a message needs one call of the transport over a lane that a put has connected.
func TestMessages_LaneOfPuts(t *testing.T) {
	overAll(t, func(t *testing.T, p *pair) {
		p.connect().warm()
		require.NoError(t, p.finish(p.a.ep.TagSend(1, []byte{1}, nil)))
		p.until(func() bool { return p.b.w.tag.table.Unexpected() == 1 })
		assert.Equal(t, p.a.ep.lane(wireup.AM) != nil, p.a.ep.msgs.maxCopy >= 0)
	})
}

// TestNewEP_AddressWithExtraBytes: bytes after the end of an address are ignored.
func TestNewEP_AddressWithExtraBytes(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeRC(), faketp.LikeUD())
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
