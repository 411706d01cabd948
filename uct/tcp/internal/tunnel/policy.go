package tunnel

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/gucx/gucx/ucs"
)

// Config says how connections are protected: by files or by a tls.Config. The zero
// value is: not at all.
type Config struct {
	Cert, Key, CA string      // files (PEM): certificate, its private key, authorities
	TLS           *tls.Config // in place of the files
	Name          string      // that certificates of peers must carry; empty: the address they are reached by

	// Protocol is the application protocol that both sides name (ALPN), so that a
	// certificate of the same authority for another service is of no use here.
	Protocol string
}

// Policy is a checked Config.
type Policy struct {
	base *tls.Config // what both roles have in common
	name string      // Config.Name
}

// Policy returns what c demands, nil for plain connections. An incomplete or weaker
// demand is ErrInvalidParam: there is no half of it.
func (c *Config) Policy() (*Policy, error) {
	files := 0
	for _, f := range []string{c.Cert, c.Key, c.CA} {
		if f != "" {
			files++
		}
	}
	switch {
	case files == 0 && c.TLS == nil && c.Name == "":
		return nil, nil
	case files > 0 && c.TLS != nil:
		return nil, fmt.Errorf("%w: TLS by files and by a tls.Config", ucs.ErrInvalidParam)
	case c.TLS != nil:
		return c.given()
	case files < 3:
		return nil, fmt.Errorf("%w: TLS needs TLS_CERT, TLS_KEY and TLS_CA", ucs.ErrInvalidParam)
	}
	return c.fromFiles()
}

func (c *Config) fromFiles() (*Policy, error) {
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: TLS_CERT, TLS_KEY: %w", ucs.ErrInvalidParam, err)
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("%w: TLS_CA: %w", ucs.ErrInvalidParam, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: TLS_CA: no certificate in %s", ucs.ErrInvalidParam, c.CA)
	}
	return c.harden(&tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ClientCAs: roots}), nil
}

// given takes the caller's tls.Config, which must not ask for less than mutual
// authentication.
func (c *Config) given() (*Policy, error) {
	t := c.TLS
	why := ""
	switch {
	case len(t.Certificates) == 0 && (t.GetCertificate == nil || t.GetClientCertificate == nil):
		why = "no certificate for both roles"
	case t.RootCAs == nil || t.ClientCAs == nil:
		why = "RootCAs and ClientCAs must name who is trusted"
	case t.InsecureSkipVerify:
		why = "InsecureSkipVerify"
	case t.GetConfigForClient != nil:
		why = "GetConfigForClient would replace the checks"
	case t.MaxVersion != 0 && t.MaxVersion < tls.VersionTLS13:
		why = "MaxVersion below TLS 1.3"
	}
	if why != "" {
		return nil, fmt.Errorf("%w: tls.Config: %s", ucs.ErrInvalidParam, why)
	}
	return c.harden(t.Clone()), nil
}

// harden sets what is not for the configuration to decide.
func (c *Config) harden(t *tls.Config) *Policy {
	name := c.Name
	if name == "" {
		name = t.ServerName
	}
	t.MinVersion, t.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
	t.ClientAuth = tls.RequireAndVerifyClientCert
	t.NextProtos = []string{c.Protocol}
	// A resumed connection would not look at the certificates again.
	t.SessionTicketsDisabled, t.ClientSessionCache = true, nil
	t.DynamicRecordSizingDisabled = true
	return &Policy{base: t, name: name}
}

// client is the configuration of the side that connects.
func (p *Policy) client(peer netip.Addr) *tls.Config {
	t := p.base.Clone()
	t.ServerName = p.name
	if p.name == "" {
		t.ServerName = peer.String()
	}
	return t
}

var errNoPeerCert = errors.New("tls: peer without certificate")

// server is the configuration of the side that accepts. A client is verified
// against the authorities by crypto/tls; its name here.
func (p *Policy) server() *tls.Config {
	t := p.base.Clone()
	if p.name == "" {
		return t
	}
	further := t.VerifyConnection
	t.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errNoPeerCert
		}
		if err := state.PeerCertificates[0].VerifyHostname(p.name); err != nil {
			return err
		}
		if further != nil {
			return further(state)
		}
		return nil
	}
	return t
}
