package bootstrap

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/gucx/gucx/internal/tlspolicy"
	"github.com/gucx/gucx/ucs"
)

// Protocol is the application protocol (ALPN) of the sockets: a connection for
// another service with the same certificate authority is rejected.
const Protocol = "gucx-bootstrap/1"

// TLSConfigs returns configurations that require and verify a certificate of the peer; an implementation is
// *tlspolicy.Policy. Any goroutine may call its methods.
type TLSConfigs interface {
	// Client is for the side that connects to a peer at an address.
	Client(peer netip.Addr) *tls.Config
	// Server is for the side that accepts a connection from a peer at an address.
	Server(peer netip.Addr) *tls.Config
}

// tlsRecord has the first bytes of a TLS handshake: a handshake record of version 3.x (RFC 8446, 5.1).
var tlsRecord = [...]byte{22, 3}

// errNoTLS means that a dialer has sent its HELLO unencrypted to a listener that requires TLS.
var errNoTLS = fmt.Errorf("it does not use TLS: %w", ErrUnauthenticated)

// secure performs the TLS handshake of a dialer, over tcp and if TLS is required.
func (c *Conn) secure(configs TLSConfigs) error {
	if configs == nil || c.From.Network != "tcp" {
		return nil
	}
	conn := tls.Client(c.socket, configs.Client(c.From.Addr.Addr()))
	if err := conn.Handshake(); err != nil {
		return tlsError(err)
	}
	c.socket, c.From.Name = conn, certName(conn)
	return nil
}

// tlsError returns the error of a dialer whose TLS handshake failed.
func tlsError(err error) error {
	var untrusted *tls.CertificateVerificationError
	var first tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("the certificate of the listener: %w: %w", ErrUnauthenticated, err)
	case errors.As(err, &first) && isMessage(first.RecordHeader):
		return &RejectedError{Code: CodeNoTLS}
	case errors.As(err, &first):
		return errProtocol
	case isAlert(err):
		return fmt.Errorf("%w: %w: %w", ucs.ErrRejected, ErrUnauthenticated, err)
	}
	return reset(eofError(err))
}

// isMessage reports whether b is the beginning of a message of this protocol.
func isMessage(b [5]byte) bool { return binary.LittleEndian.Uint32(b[:]) == magic }

// isAlert reports whether err is a TLS alert: in TLS 1.3 a dialer receives the alert for a rejected
// certificate when it reads the reply.
func isAlert(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}

// secure performs the TLS handshake of a listener, over tcp and if TLS is required. Errors:
// errNoTLS, ErrUnauthenticated, os.ErrDeadlineExceeded, ErrConnReset.
func (r *Request) secure() error {
	if !r.requiresTLS() {
		return nil
	}
	conn := tls.Server(r.plain, r.l.cfg.TLS.Server(r.From.Addr.Addr()))
	var first tls.RecordHeaderError
	switch err := conn.Handshake(); {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case errors.As(err, &first) && isMessage(first.RecordHeader):
		return errNoTLS
	default:
		return fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	r.secret, r.From.Name = conn, certName(conn)
	return nil
}

// requiresTLS reports whether the dialer must use TLS.
func (r *Request) requiresTLS() bool { return r.l.cfg.TLS != nil && r.From.Network == "tcp" }

// certName returns the identity in the certificate of the peer.
func certName(conn *tls.Conn) string {
	state := conn.ConnectionState()
	return tlspolicy.PeerName(&state)
}
