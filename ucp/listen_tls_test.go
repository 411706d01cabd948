package ucp_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/tlsets"
	"github.com/gucx/gucx/internal/testenv/ucppair"
	"github.com/gucx/gucx/ucp"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/ucs/config"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/all"
	"github.com/gucx/gucx/uct/tcp"
)

// tcpOf returns the transport tcp with two configurations, one for each end.
func tcpOf(a, b tcp.Config) tlsets.Set {
	return tlsets.Set{Name: "tcp", TLS: config.Allow("tcp"), Open: func(testing.TB) (_, _ []uct.Component) {
		return tlsets.Components(all.Config{TCP: a}), tlsets.Components(all.Config{TCP: b})
	}}
}

// withURI returns a tcp configuration with a certificate for a URI, which requires URIs of a cluster.
func withURI(t *testing.T, a *testenv.Authority, uri string) tcp.Config {
	u, err := url.Parse(uri)
	require.NoError(t, err)
	cert := a.IssueAs("", time.Hour, func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses, c.URIs = nil, nil, []*url.URL{u}
	})
	return tcp.Config{TLS: a.Config(cert), TLSName: "spiffe://cluster/*"}
}

const dialerURI, listenerURI = "spiffe://cluster/dialer", "spiffe://cluster/listener"

// TestDial_TLS: the sockets of Listen and Dial use the certificates of tcp, and both sides get the identity of the
// peer.
func TestDial_TLS(t *testing.T) {
	authority := testenv.NewAuthority(t)
	p := ucppair.New(t, tcpOf(withURI(t, authority, dialerURI), withURI(t, authority, listenerURI)), ucp.Config{})
	accepted := ""
	l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{Keys: map[string]*ucp.Mem{"all": p.B.Mem}, Accept: func(r *ucp.ConnRequest) bool {
		accepted = r.From.Name
		return true
	}})
	peer, err := dialTo(p, l, ucp.DialConfig{})
	require.NoError(t, err)
	assert.Equal(t, dialerURI, accepted)
	assert.Equal(t, dialerURI, l.peers[0].From.Name)
	assert.Equal(t, dialerURI, l.peers[0].EP.PeerIdentity().Name)
	assert.Equal(t, listenerURI, peer.EP.PeerIdentity().Name)
	key := peer.Keys["all"]
	require.NoError(t, p.Finish(peer.EP.Put([]byte("data"), key.Addr(), key, nil)))
	require.NoError(t, p.Finish(peer.EP.Flush()))
	assert.Equal(t, "data", string(p.B.Mem.Bytes()[:4]))
	key.Close()
	require.NoError(t, p.Finish(peer.EP.Close(ucp.CloseFlush)))
	p.Until(func() bool { return len(l.reasons) == 1 })
}

// TestDial_TLSOnOneSide: neither side connects, both get the reason, and the listener sends no data of its own.
func TestDial_TLSOnOneSide(t *testing.T) {
	authority := testenv.NewAuthority(t)
	secret := tcp.Config{TLS: authority.Good()}
	for name, tc := range map[string]struct {
		a, b tcp.Config
		text string
	}{
		"listener": {tcp.Config{}, secret, "it demands TLS"},
		"dialer":   {secret, tcp.Config{}, "it does not use TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			p := ucppair.New(t, tcpOf(tc.a, tc.b), ucp.Config{})
			l := listen(t, &p.B, "tcp", ":0", ucp.ListenConfig{Private: []byte("private"), Keys: map[string]*ucp.Mem{"board": p.B.Mem}})
			_, err := dialTo(p, l, ucp.DialConfig{})
			require.ErrorIs(t, err, ucp.ErrUnauthenticated)
			assert.ErrorIs(t, err, ucs.ErrRejected)
			assert.ErrorContains(t, err, tc.text)
			assert.EqualValues(t, 1, listenStat(p, "/listen.unauthenticated_dialers"))
			assert.Empty(t, l.events)
			said := readUntilClosed(p, l.untrusted(hello(p.A.W.Address())))
			if name == "listener" {
				require.Len(t, said, 13)
				assert.Equal(t, byte(3), said[6], "REJECT")
				assert.False(t, bytes.Contains(said, p.B.W.Address()))
			}
		})
	}
}

// TestNewContext_BadTLS: incomplete settings are an error, also if tcp is not selected.
func TestNewContext_BadTLS(t *testing.T) {
	for _, cfg := range []tcp.Config{{TLSName: "worker"}, {TLSCert: "cert"}, {TLS: &tls.Config{}}} {
		_, err := ucp.NewContext(ucp.Config{TLS: config.Allow("sm")}, tlsets.Components(all.Config{TCP: cfg})...)
		assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	}
}
