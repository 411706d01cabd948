// Package tlspolicy turns the TLS settings of a process into the tls.Config of both ends of
// a connection. Every part of the library that opens a socket to another host uses it, so
// that one set of certificates and one set of rules holds for all of them:
//
//   - TLS 1.3, certificates on both sides, no resumption.
//   - The certificate of the peer must come from the authorities of the policy and carry the
//     name of the policy, or, without one, the IP address at the other end of the connection.
//     Both ends check that.
package tlspolicy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/gucx/gucx/ucs"
)

// Config says how connections are protected: by files or by a tls.Config. The zero
// value is: not at all.
type Config struct {
	Cert, Key, CA string      // files (PEM): certificate, its private key, authorities
	TLS           *tls.Config // in place of the files
	// Name must be in the certificates of all peers: a DNS name, an IP address, or a URI, such
	// as spiffe://cluster/worker. A URI that ends in /* permits all below it. Empty means the
	// IP address at the other end of the connection.
	Name string

	// Protocol is the application protocol that both sides name (ALPN), so that a
	// certificate of the same authority for another service is of no use here.
	Protocol string
}

// Policy is a checked Config. It does not change; its methods may be called by any goroutine.
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
		return c.fromTLSConfig()
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

// fromTLSConfig returns the policy for the caller's tls.Config, which must require mutual
// authentication.
func (c *Config) fromTLSConfig() (*Policy, error) {
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

// Client is the configuration of the side that connects to a peer at an address. A peer that
// has another certificate than the policy demands fails the handshake with a
// *tls.CertificateVerificationError.
func (p *Policy) Client(peer netip.Addr) *tls.Config {
	t := p.base.Clone()
	name := p.nameOf(peer)
	t.ServerName = name
	if !strings.Contains(name, "://") {
		return t // crypto/tls verifies the chain and the name
	}
	// crypto/tls knows no URIs: the chain and the name are verified here.
	t.ServerName, t.InsecureSkipVerify = "", true
	further := t.VerifyConnection
	t.VerifyConnection = func(state tls.ConnectionState) error {
		if err := p.verifyChain(&state); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return verifyName(&state, name, further)
	}
	return t
}

// Server is the configuration of the side that accepts a connection from a peer at an
// address. crypto/tls verifies the chain of the client.
func (p *Policy) Server(peer netip.Addr) *tls.Config {
	t := p.base.Clone()
	name, further := p.nameOf(peer), t.VerifyConnection
	t.VerifyConnection = func(state tls.ConnectionState) error { return verifyName(&state, name, further) }
	return t
}

// nameOf is what the certificate of a peer at an address must carry.
func (p *Policy) nameOf(peer netip.Addr) string {
	if p.name != "" {
		return p.name
	}
	return peer.Unmap().WithZone("").String()
}

var errNoPeerCert = errors.New("tls: peer without certificate")

// verifyChain verifies that the certificate of a server comes from the authorities.
func (p *Policy) verifyChain(state *tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errNoPeerCert
	}
	opts := x509.VerifyOptions{Roots: p.base.RootCAs, Intermediates: x509.NewCertPool()}
	if p.base.Time != nil {
		opts.CurrentTime = p.base.Time()
	}
	for _, c := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}

// verifyName checks the name in the certificate of the peer, and then calls further, the
// VerifyConnection of the user, unless that is nil.
func verifyName(state *tls.ConnectionState, name string, further func(tls.ConnectionState) error) error {
	if len(state.PeerCertificates) == 0 {
		return errNoPeerCert
	}
	if err := matchName(state.PeerCertificates[0], name); err != nil {
		return fmt.Errorf("%w; set TLS_NAME to a name that the certificates of all peers carry", err)
	}
	if further != nil {
		return further(*state)
	}
	return nil
}

// matchName returns an error unless the certificate carries the name, as Config.Name says.
func matchName(cert *x509.Certificate, name string) error {
	if !strings.Contains(name, "://") {
		return cert.VerifyHostname(name)
	}
	below, wild := strings.CutSuffix(name, "*")
	wild = wild && strings.HasSuffix(below, "/")
	for _, u := range cert.URIs {
		if s := u.String(); s == name || wild && strings.HasPrefix(s, below) && !hasDots(u.Path) {
			return nil
		}
	}
	return fmt.Errorf("x509: certificate is valid for %s, not %s", PeerNameOf(cert), name)
}

// hasDots reports that a path has elements that lead upwards.
func hasDots(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}

// PeerName is the identity that the peer of a connection has proved: see PeerNameOf. Empty
// before the handshake.
func PeerName(state *tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	return PeerNameOf(state.PeerCertificates[0])
}

// PeerNameOf is the identity in a certificate: its first URI, as SPIFFE has it, else its first
// DNS name, else its first IP address, else the common name of its subject.
func PeerNameOf(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case len(c.IPAddresses) > 0:
		return c.IPAddresses[0].String()
	}
	return c.Subject.CommonName
}
