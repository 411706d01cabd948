package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/gucx/gucx/uct"
)

// tlsProtocol is the application protocol that both sides name (ALPN), so that a
// certificate of the same authority for another service is of no use here.
const tlsProtocol = "gucx-tcp/1"

// secrecy is how an iface protects its connections; nil: not at all.
type secrecy struct {
	base *tls.Config // what both roles have in common
	name string      // that certificates of peers must carry; empty: the address they are reached by
}

// secrecy returns what the configuration demands, nil for plain connections.
// Every incomplete or weaker demand is refused: there is no half of it.
func (c *Config) secrecy() (*secrecy, error) {
	files := 0
	for _, f := range []string{c.TLSCert, c.TLSKey, c.TLSCA} {
		if f != "" {
			files++
		}
	}
	switch {
	case files == 0 && c.TLS == nil && c.TLSName == "":
		return nil, nil
	case files > 0 && c.TLS != nil:
		return nil, fmt.Errorf("%w: TLS by files and by a tls.Config", uct.ErrInvalidParam)
	case c.TLS != nil:
		return c.given()
	case files < 3:
		return nil, fmt.Errorf("%w: TLS needs TLS_CERT, TLS_KEY and TLS_CA", uct.ErrInvalidParam)
	}
	return c.fromFiles()
}

func (c *Config) fromFiles() (*secrecy, error) {
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("%w: TLS_CERT, TLS_KEY: %w", uct.ErrInvalidParam, err)
	}
	pem, err := os.ReadFile(c.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("%w: TLS_CA: %w", uct.ErrInvalidParam, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: TLS_CA: no certificate in %s", uct.ErrInvalidParam, c.TLSCA)
	}
	return harden(&tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ClientCAs: roots}, c.TLSName), nil
}

// given takes the caller's tls.Config, which must not ask for less than mutual
// authentication.
func (c *Config) given() (*secrecy, error) {
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
		return nil, fmt.Errorf("%w: tls.Config: %s", uct.ErrInvalidParam, why)
	}
	name := c.TLSName
	if name == "" {
		name = t.ServerName
	}
	return harden(t.Clone(), name), nil
}

// harden sets what is not for the configuration to decide.
func harden(t *tls.Config, name string) *secrecy {
	t.MinVersion, t.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
	t.ClientAuth = tls.RequireAndVerifyClientCert
	t.NextProtos = []string{tlsProtocol}
	// A resumed connection would not look at the certificates again.
	t.SessionTicketsDisabled, t.ClientSessionCache = true, nil
	t.DynamicRecordSizingDisabled = true
	return &secrecy{base: t, name: name}
}

// client is the configuration of the side that connects.
func (s *secrecy) client(peer netip.Addr) *tls.Config {
	t := s.base.Clone()
	t.ServerName = s.name
	if s.name == "" {
		t.ServerName = peer.String()
	}
	return t
}

var errNoPeerCert = errors.New("tls: peer without certificate")

// server is the configuration of the side that accepts. A client is verified
// against the authorities by crypto/tls; its name here.
func (s *secrecy) server() *tls.Config {
	t := s.base.Clone()
	if s.name == "" {
		return t
	}
	further := t.VerifyConnection
	t.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errNoPeerCert
		}
		if err := state.PeerCertificates[0].VerifyHostname(s.name); err != nil {
			return err
		}
		if further != nil {
			return further(state)
		}
		return nil
	}
	return t
}
