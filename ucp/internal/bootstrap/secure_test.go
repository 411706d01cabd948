package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/ucs"
)

// policy is the policy of a tls.Config, for peers with a name or, if that is empty, with their IP
// address.
func policy(t *testing.T, c *tls.Config, name string) TLSConfigs {
	t.Helper()
	p, err := (&tlspolicy.Config{TLS: c, Name: name, Protocol: Protocol}).Policy()
	require.NoError(t, err)
	return p
}

// issueURI returns a certificate with a URI and without an IP address.
func issueURI(t *testing.T, a *testenv.Authority, uri string) tls.Certificate {
	u, err := url.Parse(uri)
	require.NoError(t, err)
	return a.IssueAs("", time.Hour, func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses, c.URIs = nil, nil, []*url.URL{u}
	})
}

// TestTLS_Identities: both sides know the name in the certificate of the other.
func TestTLS_Identities(t *testing.T) {
	a := testenv.NewAuthority(t)
	const dialer, worker = "spiffe://cluster/dialer", "spiffe://cluster/listener"
	l := open(t, "tcp", ":0", Config{TLS: policy(t, a.Config(issueURI(t, a, worker)), "spiffe://cluster/*")})
	l.tls = policy(t, a.Config(issueURI(t, a, dialer)), worker)
	result := l.dial(t.Context())
	r := l.next(1)[0]
	assert.Equal(t, *sampleHello(), r.Hello)
	assert.Equal(t, dialer, r.From.Name)
	r.Accept(sampleAnswer())
	d := <-result
	require.NoError(t, d.err)
	assert.Equal(t, sampleAnswer(), d.conn.Answer)
	assert.Equal(t, worker, d.conn.From.Name)
	require.NoError(t, d.conn.Close())
	assert.Same(t, r, l.next(1)[0])
	assert.True(t, r.Gone(), "the end of the connection is seen through TLS")
}

// TestTLS_UnixSockets: unix sockets need no TLS, because the kernel authenticates their peers.
func TestTLS_UnixSockets(t *testing.T) {
	a := testenv.NewAuthority(t)
	l := open(t, "unix", abstractName(), Config{TLS: policy(t, a.Good(), "")})
	result := l.dial(t.Context())
	l.next(1)[0].Reject(CodeRejected, nil)
	assert.ErrorIs(t, (<-result).err, ucs.ErrRejected)
}

// TestTLS_Rejected: a dialer with wrong credentials is rejected without the owner, and both sides get
// the reason.
func TestTLS_Rejected(t *testing.T) {
	a, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	foreign := &tls.Config{Certificates: []tls.Certificate{other.Issue("worker", time.Hour)}, RootCAs: a.Pool(), ClientCAs: a.Pool()}
	noAddress := a.Config(a.IssueAs("worker", time.Hour, func(c *x509.Certificate) { c.IPAddresses = nil }))
	for _, tc := range []struct {
		name            string
		dials, listens  TLSConfigs
		rejected        bool
		text            string
		unauthenticated bool // the listener counts it
	}{
		{"plain dialer", nil, policy(t, a.Good(), ""), true, "GUCX_TCP_TLS_CERT", true},
		{"plain listener", policy(t, a.Good(), ""), nil, true, "does not use TLS", true},
		{"authority of the dialer", policy(t, foreign, ""), policy(t, a.Good(), ""), true, "unknown certificate authority", true},
		{"authority of the listener", policy(t, a.Good(), ""), policy(t, foreign, ""), false, "signed by unknown authority", true},
		{"expired dialer", policy(t, a.Config(a.Issue("worker", -time.Hour)), ""), policy(t, a.Good(), ""), true, "expired certificate", true},
		{"address of the dialer", policy(t, noAddress, "worker"), policy(t, a.Good(), ""), true, "bad certificate", true},
		{"address of the listener", policy(t, a.Good(), ""), policy(t, noAddress, ""), false, "IP SANs", true},
		{"name of the dialer", policy(t, a.Config(a.Issue("guest", time.Hour)), ""), policy(t, a.Good(), "worker"), true, "bad certificate", true},
		{"name of the listener", policy(t, a.Good(), "server"), policy(t, a.Good(), ""), false, "not server", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := open(t, "tcp", ":0", Config{TLS: tc.listens})
			l.tls = tc.dials
			d := <-l.dial(t.Context())
			require.ErrorIs(t, d.err, ErrUnauthenticated)
			assert.ErrorContains(t, d.err, tc.text)
			if tc.rejected {
				assert.ErrorIs(t, d.err, ucs.ErrRejected)
			}
			l.idle()
			assert.Empty(t, l.inbox.Take())
			assert.EqualValues(t, 1, l.cfg.Stats.unauthenticated.Load())
		})
	}
}

// TestTLS_NothingInClear: a client without TLS, without a certificate, or with another protocol receives no byte of an
// ACCEPT.
func TestTLS_NothingInClear(t *testing.T) {
	a := testenv.NewAuthority(t)
	hello := sampleHello().append(nil)
	good := a.Issue("worker", time.Hour)
	for name, cfg := range map[string]*tls.Config{
		"plain":          nil,
		"no certificate": {RootCAs: a.Pool(), ServerName: "127.0.0.1", NextProtos: []string{Protocol}},
		"other protocol": {RootCAs: a.Pool(), ServerName: "127.0.0.1", NextProtos: []string{"h2"}, Certificates: []tls.Certificate{good}},
		"TLS 1.2":        {RootCAs: a.Pool(), ServerName: "127.0.0.1", NextProtos: []string{Protocol}, Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, "tcp", ":0", Config{TLS: policy(t, a.Good(), "")})
			conn := l.raw(nil)
			if cfg == nil {
				_, err := conn.Write(hello)
				require.NoError(t, err)
				got, _ := io.ReadAll(conn)
				assert.Equal(t, rejection(CodeTLS, nil), got)
			} else {
				client := tls.Client(conn, cfg)
				_, err := client.Write(hello)
				if err == nil {
					_, err = client.Read(make([]byte, 1))
				}
				var alert *net.OpError
				require.ErrorAs(t, err, &alert)
			}
			l.idle()
			assert.Empty(t, l.inbox.Take())
			assert.EqualValues(t, 1, l.cfg.Stats.unauthenticated.Load())
		})
	}
}

// TestTLS_Silence: a client that stops during the TLS handshake loses its place.
func TestTLS_Silence(t *testing.T) {
	a := testenv.NewAuthority(t)
	l := open(t, "tcp", ":0", Config{TLS: policy(t, a.Good(), ""), HelloTimeout: time.Millisecond})
	_, err := io.ReadAll(l.raw([]byte{22, 3, 1}))
	assert.NoError(t, err)
	l.counted("silent", 1, l.cfg.Stats.silent.Load)
	l.idle()
}

// TestTLS_OtherListener: the error for a listener with another protocol.
func TestTLS_OtherListener(t *testing.T) {
	a := testenv.NewAuthority(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := server.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 1))
		_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		_ = conn.Close()
	}()
	_, err = dialAndExchange(t.Context(), "tcp", server.Addr().String(), sampleHello(), &DialConfig{TLS: policy(t, a.Good(), "")})
	assert.ErrorIs(t, err, ucs.ErrUnsupported)
	<-done
}
