package ucp_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
)

const testToken = config.Secret("0123456789abcdef")

// TestDial_Token: Dial connects if both sides have the same token. With another one, or on one side only, it fails, and
// the listener does not call Accept.
func TestDial_Token(t *testing.T) {
	overNetworks(t, func(t *testing.T, _ *ucppair.Pair, network, address string) {
		for _, tc := range []struct{ dials, listens config.Secret }{
			{testToken, testToken}, {testToken + "x", testToken}, {"", testToken}, {testToken, ""},
		} {
			if network == "unix" && address[0] != '@' {
				address = filepath.Join(filepath.Dir(address), string("s"+tc.dials+"-"+tc.listens))
			}
			a := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{AuthToken: tc.dials})
			b := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{AuthToken: tc.listens})
			p := &ucppair.Pair{T: t, A: a.A, B: b.B}
			l := listen(t, &p.B, network, address, ucp.ListenConfig{})
			peer, err := dialTo(p, l, ucp.DialConfig{})
			if tc.dials == tc.listens {
				require.NoError(t, err)
				require.NoError(t, p.Finish(peer.EP.Close(ucp.CloseFlush)))
				p.Until(func() bool { return len(l.reasons) == 1 })
			} else {
				assert.ErrorIs(t, err, ucp.ErrUnauthenticated)
				assert.Empty(t, l.events)
			}
			require.NoError(t, l.Close())
		}
	})
}

// TestToken_UnknownWorker: with a token, a worker that knows the address cannot connect before NewEP, Dial or Listen
// names it here.
func TestToken_UnknownWorker(t *testing.T) {
	p := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{AuthToken: testToken})
	ep, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	r, err := ep.SendActive(1, nil, []byte("x"), nil)
	require.NoError(t, err)
	p.Until(func() bool { return listenStat(p, ".refused_peers") > 0 })
	assert.Zero(t, p.B.W.EPs().Len())
	assert.Zero(t, p.B.W.Peers().Len())
	_, err = p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
	require.NoError(t, err)
	if r != nil {
		require.NoError(t, p.Finish(r, nil))
	}
	require.NoError(t, p.Finish(ep.Flush()))
}

// TestToken_TCP: workers that name each other connect over tcp if they have the same token. They do not reach each
// other with different ones, or without.
func TestToken_TCP(t *testing.T) {
	for _, tc := range []struct {
		a, b    config.Secret
		refused error
	}{
		{testToken, testToken, nil}, {"", "", nil},
		{testToken, testToken + "x", ucs.ErrRejected}, {testToken, "", ucs.ErrUnreachable}, {"", testToken, ucs.ErrUnreachable},
	} {
		a := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{AuthToken: tc.a})
		b := ucppair.New(t, tlsets.Real("tcp", "tcp"), ucp.Config{AuthToken: tc.b})
		p := &ucppair.Pair{T: t, A: a.A, B: b.B}
		to, err := p.A.W.NewEP(p.B.W.Address(), ucp.EPConfig{})
		if tc.refused == ucs.ErrUnreachable {
			require.ErrorIs(t, err, tc.refused)
			require.ErrorContains(t, err, "AUTH_TOKEN")
			continue
		}
		require.NoError(t, err)
		_, err = p.B.W.NewEP(p.A.W.Address(), ucp.EPConfig{})
		require.NoError(t, err)
		if tc.refused != nil {
			require.ErrorIs(t, p.Finish(to.TagSend(1, []byte("x"), nil)), tc.refused)
			require.Zero(t, p.B.W.Tags().Unexpected())
			continue
		}
		p.A.EP = to
		passTag(p, 1, 100, 1)
	}
}
