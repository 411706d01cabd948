package ucp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct/all"
)

const testToken = config.Secret("0123456789abcdef")

// TestDial_Token: Dial connects if both sides have the same token. With another one, or on one side only, it fails, and
// the listener does not call Accept.
func TestDial_Token(t *testing.T) {
	overNetworks(t, func(t *testing.T, _ *pair, network, address string) {
		for _, tc := range []struct{ dials, listens config.Secret }{
			{testToken, testToken}, {testToken + "x", testToken}, {"", testToken}, {testToken, ""},
		} {
			if network == "unix" && address[0] != '@' {
				address = filepath.Join(filepath.Dir(address), string("s"+tc.dials+"-"+tc.listens))
			}
			a := newPair(t, tlsets.Real("tcp", "tcp"), Config{AuthToken: tc.dials})
			b := newPair(t, tlsets.Real("tcp", "tcp"), Config{AuthToken: tc.listens})
			p := &pair{t: t, a: a.a, b: b.b}
			l := p.b.listen(t, network, address, ListenConfig{})
			peer, err := p.dialTo(l, DialConfig{})
			if tc.dials == tc.listens {
				require.NoError(t, err)
				require.NoError(t, p.finish(peer.EP.Close(CloseFlush)))
				p.until(func() bool { return len(l.reasons) == 1 })
			} else {
				assert.ErrorIs(t, err, ErrUnauthenticated)
				assert.Empty(t, l.events)
			}
			require.NoError(t, l.Close())
		}
	})
}

// TestToken_UnknownWorker: with a token, a worker that knows the address cannot connect before NewEP, Dial or Listen
// names it here.
func TestToken_UnknownWorker(t *testing.T) {
	p := newPair(t, tlsets.Real("tcp", "tcp"), Config{AuthToken: testToken})
	ep, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
	require.NoError(t, err)
	r, err := ep.SendActive(1, nil, []byte("x"), nil)
	require.NoError(t, err)
	p.until(func() bool { return p.stat(".refused_peers") > 0 })
	assert.Zero(t, p.b.w.eps.Len())
	assert.Zero(t, p.b.w.peers.Len())
	_, err = p.b.w.NewEP(p.a.w.Address(), EPConfig{})
	require.NoError(t, err)
	if r != nil {
		require.NoError(t, p.finish(r, nil))
	}
	require.NoError(t, p.finish(ep.Flush()))
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
		a := newPair(t, tlsets.Real("tcp", "tcp"), Config{AuthToken: tc.a})
		b := newPair(t, tlsets.Real("tcp", "tcp"), Config{AuthToken: tc.b})
		p := &pair{t: t, a: a.a, b: b.b}
		to, err := p.a.w.NewEP(p.b.w.Address(), EPConfig{})
		if tc.refused == ucs.ErrUnreachable {
			require.ErrorIs(t, err, tc.refused)
			require.ErrorContains(t, err, "AUTH_TOKEN")
			continue
		}
		require.NoError(t, err)
		_, err = p.b.w.NewEP(p.a.w.Address(), EPConfig{})
		require.NoError(t, err)
		if tc.refused != nil {
			require.ErrorIs(t, p.finish(to.TagSend(1, []byte("x"), nil)), tc.refused)
			require.Zero(t, p.b.w.tag.table.Unexpected())
			continue
		}
		p.a.ep = to
		p.tag(1, 100, 1)
	}
}

// TestConfig_Token: the token is from one of two settings, and is long enough.
func TestConfig_Token(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("  "+string(testToken)+"\n"), 0o600))
	short := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(short, []byte("short\n"), 0o600))
	for _, cfg := range []Config{{AuthToken: testToken}, {AuthTokenFile: file}} {
		got, err := cfg.token()
		require.NoError(t, err)
		assert.Equal(t, string(testToken), got)
	}
	for _, cfg := range []Config{{AuthToken: "short"}, {AuthTokenFile: short}, {AuthTokenFile: file + "x"}, {AuthToken: testToken, AuthTokenFile: file}} {
		_, err := NewContext(cfg, all.Components()...)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}
