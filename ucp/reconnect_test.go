package ucp_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
)

// forgetPeers makes EPs of a to many peers and closes them, until the worker has forgotten all earlier peers.
func forgetPeers(t *testing.T, p *ucppair.Pair) {
	t.Helper()
	const enough = 1025
	addr := *p.B.W.AddressInfo()
	for range enough {
		binary.LittleEndian.PutUint64(addr.Key[:], addr.UUID()+1)
		packed, err := addr.Pack()
		require.NoError(t, err)
		ep, err := p.A.W.NewEP(packed, ucp.EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.Finish(ep.Close(ucp.CloseForce)))
	}
}

// reconnect connects a and b, makes a close its end, calls meanwhile, and connects them again. It returns the end of b
// that is not closed.
func reconnect(t *testing.T, meanwhile func(p *ucppair.Pair)) (p *ucppair.Pair, old *ucp.EP) {
	t.Helper()
	p, _ = ucppair.Fake(t, ucp.Config{}, faketp.LikeSM())
	p.Both()
	checkMessages(p, &p.A, &p.B)
	require.NoError(t, p.Finish(p.A.EP.Close(ucp.CloseFlush)))
	p.Until(func() bool { return p.B.EP.Err() != nil })
	old = p.B.EP
	meanwhile(p)
	p.Both()
	return p, old
}

// TestReconnect_SamePeer: when a peer connects again, both sides continue with the same sequence number, so one
// connection serves both EPs, although one side has not closed the first one yet.
func TestReconnect_SamePeer(t *testing.T) {
	p, old := reconnect(t, func(*ucppair.Pair) {})
	checkMessages(p, &p.A, &p.B)
	checkMessages(p, &p.B, &p.A)
	assert.Equal(t, 1, p.A.W.EPs().Len())
	assert.Equal(t, 2, p.B.W.EPs().Len())
	require.NoError(t, p.Finish(old.Close(ucp.CloseForce)))
}

// TestReconnect_ForgottenPeer: one side begins with number 0 again, and the other side does not, because it has not
// closed its end. Then each side has a connection of its own, and messages are not confused.
func TestReconnect_ForgottenPeer(t *testing.T) {
	p, old := reconnect(t, func(p *ucppair.Pair) { forgetPeers(t, p) })
	require.Zero(t, p.A.EP.Sequence(), "it is forgotten")
	checkMessages(p, &p.A, &p.B)
	checkMessages(p, &p.B, &p.A)
	require.ErrorIs(t, old.Err(), ucs.ErrPeerClosed)
	require.NoError(t, p.A.EP.Err())
	require.NoError(t, p.B.EP.Err())
	require.NoError(t, p.Finish(old.Close(ucp.CloseForce)))
}
