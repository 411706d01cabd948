package ucp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/ucs"
)

// forgetPeers makes EPs of a to many peers and closes them, until the worker has forgotten all earlier peers.
func (p *pair) forgetPeers(t *testing.T) {
	t.Helper()
	const enough = 1025
	addr := *p.b.w.net.addr
	for range enough {
		binary.LittleEndian.PutUint64(addr.Key[:], addr.UUID()+1)
		packed, err := addr.Pack()
		require.NoError(t, err)
		ep, err := p.a.w.NewEP(packed, EPConfig{})
		require.NoError(t, err)
		require.NoError(t, p.finish(ep.Close(CloseForce)))
	}
}

// reconnect connects a and b, makes a close its end, calls meanwhile, and connects them again. It returns the end of b
// that is not closed.
func reconnect(t *testing.T, meanwhile func(p *pair)) (p *pair, old *EP) {
	t.Helper()
	p, _ = fakePair(t, Config{}, faketp.LikeSM())
	p.both()
	p.checkMessages(&p.a, &p.b)
	require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
	p.until(func() bool { return p.b.ep.Err() != nil })
	old = p.b.ep
	meanwhile(p)
	p.both()
	return p, old
}

// TestReconnect_SamePeer: when a peer connects again, both sides continue with the same sequence number, so one
// connection serves both EPs, although one side has not closed the first one yet.
func TestReconnect_SamePeer(t *testing.T) {
	p, old := reconnect(t, func(*pair) {})
	p.checkMessages(&p.a, &p.b)
	p.checkMessages(&p.b, &p.a)
	assert.Equal(t, 1, p.a.w.eps.Len())
	assert.Equal(t, 2, p.b.w.eps.Len())
	require.NoError(t, p.finish(old.Close(CloseForce)))
}

// TestReconnect_ForgottenPeer: one side begins with number 0 again, and the other side does not, because it has not
// closed its end. Then each side has a connection of its own, and messages are not confused.
func TestReconnect_ForgottenPeer(t *testing.T) {
	p, old := reconnect(t, func(p *pair) { p.forgetPeers(t) })
	require.Zero(t, p.a.ep.seq, "it is forgotten")
	p.checkMessages(&p.a, &p.b)
	p.checkMessages(&p.b, &p.a)
	require.ErrorIs(t, old.Err(), ucs.ErrPeerClosed)
	require.NoError(t, p.a.ep.Err())
	require.NoError(t, p.b.ep.Err())
	require.NoError(t, p.finish(old.Close(CloseForce)))
}
