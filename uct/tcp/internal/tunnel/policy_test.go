package tunnel

import (
	"crypto/tls"
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
