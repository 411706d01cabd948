package ucp_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/wireup"
)

// TestNewEP_AdoptedUsedAndClosedByThePeer: NewEP adopts the connection of the peer, over which messages have arrived,
// and the user sends one. If the peer closes its EP, the adopted EP fails, because the message may be lost.
func TestNewEP_AdoptedUsedAndClosedByThePeer(t *testing.T) {
	for name, use := range map[string]func(p *ucppair.Pair, ep *ucp.EP) error{
		"tag":    func(p *ucppair.Pair, ep *ucp.EP) error { return p.Finish(ep.TagSend(1, []byte{1}, nil)) },
		"active": func(p *ucppair.Pair, ep *ucp.EP) error { return p.Finish(ep.SendActive(9, nil, []byte{1}, nil)) },
		"stream": func(p *ucppair.Pair, ep *ucp.EP) error { return p.Finish(ep.StreamSend([]byte{1}, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			overAll(t, func(t *testing.T, p *ucppair.Pair) {
				if p.Oneself() {
					t.Skip("adopts no connection")
				}
				var from *ucp.EP
				p.B.W.OnActive(1, func(m *ucp.ActiveMessage) {
					from = m.From
					assert.NoError(t, ucppair.Release(from.SendActive(1, nil, []byte{1}, nil)))
				})
				p.Connect()
				require.NoError(t, p.Finish(p.A.EP.SendActive(1, nil, []byte{1}, nil)))
				p.Until(func() bool { return from != nil && from.Operations() == nil })
				ep, err := p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
				require.NoError(t, err)
				require.Same(t, from, ep)
				require.NoError(t, use(p, ep))
				require.NoError(t, p.Finish(ep.Flush()))
				require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
				p.Until(func() bool { return ep.Err() != nil })
				assert.ErrorIs(t, ep.Err(), ucs.ErrPeerClosed)
			})
		})
	}
}

// TestMessages_LaneOfPuts: a message needs one call of the transport over a lane that a put has connected.
func TestMessages_LaneOfPuts(t *testing.T) {
	overAll(t, func(t *testing.T, p *ucppair.Pair) {
		p.Connect().Warm()
		require.NoError(t, p.Finish(p.A.EP.TagSend(1, []byte{1}, nil)))
		p.Until(func() bool { return p.B.W.Tags().Unexpected() == 1 })
		assert.Equal(t, p.A.EP.Lane(wireup.AM) != nil, p.A.EP.Messages().MaxCopy() >= 0)
	})
}

// TestNewEP_AddressWithExtraBytes: bytes after the end of an address are ignored.
func TestNewEP_AddressWithExtraBytes(t *testing.T) {
	p, _ := ucppair.Fake(t, ucp.Config{}, faketp.LikeRC(), faketp.LikeUD())
	p.Connect().Warm()
	for i := range 3 {
		ep, err := p.B.W.NewEP(append(p.A.W.Address(), byte(i)), ucp.EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Finish(ep.Close(ucp.CloseFlush)))
	}
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	p.Until(func() bool { return p.B.W.EPs().Len() == 0 })
	assert.Zero(t, p.B.W.Peers().Len())
}
