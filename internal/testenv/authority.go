package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates of a test.
type Authority struct {
	Cert *x509.Certificate

	t   testing.TB
	key *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid for an hour.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	der := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, a.key)
	var err error
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign signs template for key. Without a certificate of the authority it is self-signed.
func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	parent := a.Cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// Issue makes a certificate for loopback and for a name, which is valid for left.
func (a *Authority) Issue(name string, left time.Duration) tls.Certificate {
	a.t.Helper()
	return a.IssueAs(name, left, func(*x509.Certificate) {})
}

// IssueAs is Issue of a certificate that change has changed before it is signed.
func (a *Authority) IssueAs(name string, left time.Duration, change func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		NotBefore:   time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(left),
	}
	change(c)
	der := a.sign(c, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Pool trusts a only.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// Config trusts a in both roles and presents cert.
func (a *Authority) Config(cert tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: a.Pool(), ClientCAs: a.Pool()}
}

// Good presents a certificate for the name "worker".
func (a *Authority) Good() *tls.Config { return a.Config(a.Issue("worker", time.Hour)) }

// Files writes a certificate, its key and the certificate of a to a directory of the test, in PEM, and returns the file
// names.
func (a *Authority) Files(of tls.Certificate) (cert, key, ca string) {
	a.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(of.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := a.t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			a.t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", of.Certificate[0]), write("key.pem", "PRIVATE KEY", der),
		write("ca.pem", "CERTIFICATE", a.Cert.Raw)
}
