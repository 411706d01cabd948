package tlspolicy

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestConfig_Policy: certificates come from files, all of them or none, or from a
// tls.Config that demands no less.
func TestConfig_Policy(t *testing.T) {
	a := testenv.NewAuthority(t)
	cert := a.Issue("worker", time.Hour)
	var files Config
	files.Cert, files.Key, files.CA = a.Files(cert)
	given := func(c *Config) *tls.Config {
		*c = Config{TLS: a.Config(cert)}
		return c.TLS
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"files", func(*Config) {}, ""},
		{"tls.Config", func(c *Config) { given(c) }, ""},
		{"no key", func(c *Config) { c.Key = "" }, "TLS_CERT, TLS_KEY and TLS_CA"},
		{"only a name", func(c *Config) { *c = Config{Name: "x"} }, "TLS_CERT, TLS_KEY and TLS_CA"},
		{"no such file", func(c *Config) { c.Cert += "x" }, "no such file"},
		{"authority without certificate", func(c *Config) { c.CA = c.Key }, "no certificate in"},
		{"both ways", func(c *Config) { c.TLS = a.Good() }, "by files and by a tls.Config"},
		{"insecure", func(c *Config) { given(c).InsecureSkipVerify = true }, "InsecureSkipVerify"},
		{"old", func(c *Config) { given(c).MaxVersion = tls.VersionTLS12 }, "below TLS 1.3"},
		{"replaced checks", func(c *Config) {
			given(c).GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		}, "GetConfigForClient"},
		{"no authority", func(c *Config) { given(c).ClientCAs = nil }, "ClientCAs"},
		{"no certificate", func(c *Config) { given(c).Certificates = nil }, "no certificate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := files
			tc.change(&cfg)
			p, err := cfg.Policy()
			if tc.want == "" {
				require.NoError(t, err)
				assert.NotNil(t, p)
				return
			}
			require.ErrorIs(t, err, ucs.ErrInvalidParam)
			assert.ErrorContains(t, err, tc.want)
		})
	}
	var none Config
	p, err := none.Policy()
	require.NoError(t, err)
	assert.Nil(t, p)
}

// certificate is one that the tests change.
type certificate func(*x509.Certificate)

// uris puts URIs into a certificate, and nothing else.
func uris(t *testing.T, names ...string) certificate {
	return func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = nil, nil
		for _, name := range names {
			u, err := url.Parse(name)
			require.NoError(t, err)
			c.URIs = append(c.URIs, u)
		}
	}
}

// handshake connects two policies of one authority over loopback and returns how it ended at
// both ends, and what the server knows of the client.
func handshake(t *testing.T, client, server *Policy) (name string, clientErr, serverErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer conn.Close()
		c := tls.Server(conn, server.Server(netip.MustParseAddr("127.0.0.1")))
		if serverErr = c.Handshake(); serverErr == nil {
			state := c.ConnectionState()
			name = PeerName(&state)
			_, _ = c.Write([]byte{1})
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	c := tls.Client(conn, client.Client(netip.MustParseAddr("127.0.0.1")))
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1)) // a client of TLS 1.3 sees here what the server thinks of it
	}
	_ = conn.Close()
	<-done
	return name, clientErr, serverErr
}

// TestPolicy_Names: both ends check the name in the certificate of the other.
func TestPolicy_Names(t *testing.T) {
	a := testenv.NewAuthority(t)
	const spiffe = "spiffe://cluster/worker"
	for _, tc := range []struct {
		name, policy string // the name that both demand
		cert         certificate
		ok           bool
	}{
		{"address", "", func(*x509.Certificate) {}, true},
		{"no address", "", func(c *x509.Certificate) { c.IPAddresses = nil }, false},
		{"another address", "", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }, false},
		{"DNS name", "worker", func(*x509.Certificate) {}, true},
		{"another DNS name", "guest", func(*x509.Certificate) {}, false},
		{"URI", spiffe, uris(t, spiffe), true},
		{"second URI", spiffe, uris(t, "spiffe://cluster/other", spiffe), true},
		{"another URI", spiffe, uris(t, "spiffe://cluster/work"), false},
		{"longer URI", spiffe, uris(t, spiffe+"/more"), false},
		{"URI below", "spiffe://cluster/*", uris(t, spiffe), true},
		{"URI beside", "spiffe://cluster/*", uris(t, "spiffe://clusters/worker"), false},
		{"URI that leads upwards", "spiffe://cluster/a/*", uris(t, "spiffe://cluster/a/../b"), false},
		{"star without a slash", "spiffe://clu*", uris(t, spiffe), false},
		{"DNS name where a URI is demanded", spiffe, func(*x509.Certificate) {}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := func(cert tls.Certificate, name string) *Policy {
				p, err := (&Config{TLS: a.Config(cert), Name: name, Protocol: "test/1"}).Policy()
				require.NoError(t, err)
				return p
			}
			good := a.IssueAs("worker", time.Hour, func(c *x509.Certificate) { // carries all of the names
				own := *c
				uris(t, spiffe)(c)
				c.DNSNames, c.IPAddresses = append(own.DNSNames, "guest"), own.IPAddresses
			})
			subject := a.IssueAs("worker", time.Hour, tc.cert)

			// as the client: only the server has to be content with the certificate
			name, clientErr, serverErr := handshake(t, policy(subject, "worker"), policy(good, tc.policy))
			if tc.ok {
				require.NoError(t, serverErr)
				require.NoError(t, clientErr)
				leaf, err := x509.ParseCertificate(subject.Certificate[0])
				require.NoError(t, err)
				assert.Equal(t, PeerNameOf(leaf), name)
			} else {
				assert.ErrorContains(t, serverErr, "TLS_NAME")
				assert.ErrorContains(t, clientErr, "bad certificate")
			}

			// as the server
			_, clientErr, _ = handshake(t, policy(good, tc.policy), policy(subject, "worker"))
			if tc.ok {
				require.NoError(t, clientErr)
			} else {
				assert.ErrorContains(t, clientErr, "x509:")
			}
		})
	}
}

// TestPolicy_Authority: a name is worth nothing without the authority, also where this package
// verifies the chain itself.
func TestPolicy_Authority(t *testing.T) {
	const name = "spiffe://cluster/worker"
	a, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	policy := func(by *testenv.Authority, left time.Duration) *Policy {
		c := a.Config(by.IssueAs("worker", left, uris(t, name)))
		p, err := (&Config{TLS: c, Name: name, Protocol: "test/1"}).Policy()
		require.NoError(t, err)
		return p
	}
	good := policy(a, time.Hour)
	for what, bad := range map[string]*Policy{"authority": policy(other, time.Hour), "expired": policy(a, -time.Hour)} {
		_, clientErr, _ := handshake(t, good, bad)
		assert.ErrorContains(t, clientErr, what)
		var untrusted *tls.CertificateVerificationError
		assert.ErrorAs(t, clientErr, &untrusted)
		_, _, serverErr := handshake(t, bad, good)
		assert.ErrorContains(t, serverErr, what)
	}
}

// TestPolicy_FurtherChecks: the VerifyConnection of the user is called at both ends.
func TestPolicy_FurtherChecks(t *testing.T) {
	a := testenv.NewAuthority(t)
	for _, name := range []string{"", "spiffe://cluster/worker"} {
		var calls atomic.Int32
		cfg := a.Config(a.IssueAs("worker", time.Hour, func(c *x509.Certificate) {
			own := *c
			uris(t, "spiffe://cluster/worker")(c)
			c.IPAddresses = own.IPAddresses
		}))
		cfg.VerifyConnection = func(tls.ConnectionState) error { calls.Add(1); return nil }
		p, err := (&Config{TLS: cfg, Name: name, Protocol: "test/1"}).Policy()
		require.NoError(t, err)
		_, clientErr, serverErr := handshake(t, p, p)
		require.NoError(t, clientErr)
		require.NoError(t, serverErr)
		assert.EqualValues(t, 2, calls.Load())
	}
}

// TestPeerNameOf: the first of URI, DNS name, address and common name that is there.
func TestPeerNameOf(t *testing.T) {
	u, err := url.Parse("spiffe://cluster/worker")
	require.NoError(t, err)
	c := &x509.Certificate{URIs: []*url.URL{u}, DNSNames: []string{"worker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	c.Subject.CommonName = "common"
	assert.Equal(t, "spiffe://cluster/worker", PeerNameOf(c))
	c.URIs = nil
	assert.Equal(t, "worker", PeerNameOf(c))
	c.DNSNames = nil
	assert.Equal(t, "127.0.0.1", PeerNameOf(c))
	c.IPAddresses = nil
	assert.Equal(t, "common", PeerNameOf(c))
	assert.Empty(t, PeerName(new(tls.ConnectionState)))
}
