package tcp

import (
	"encoding/binary"
	"errors"

	"github.com/gucx/gucx/uct/tcp/internal/tunnel"
)

// tlsProtocol is the application protocol of connections through TLS (ALPN).
const tlsProtocol = "gucx-tcp/1"

// policy is what the configuration demands of connections, nil for plain ones.
func (c *Config) policy() (*tunnel.Policy, error) {
	t := tunnel.Config{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSCA, TLS: c.TLS, Name: c.TLSName, Protocol: tlsProtocol}
	return t.Policy()
}

// newTunnels prepares connections through TLS.
func (it *Iface) newTunnels(p *tunnel.Policy) *tunnel.Group {
	return &tunnel.Group{
		Policy:   p,
		Tune:     func(fd int) error { return errors.Join(tune(fd, &it.cfg), shareLocalPorts(fd)) },
		Linger:   it.cfg.Linger,
		Refusals: it.cfg.MaxHandshakes,
		Explain:  it.demandTLS,
	}
}

// demandTLS answers a client that began with a plain HELLO.
func (it *Iface) demandTLS(first [5]byte) []byte {
	if binary.LittleEndian.Uint32(first[:]) != helloMagic {
		return nil
	}
	var b [helloLen]byte
	(&hello{version: helloVersion, msg: msgAnswer, code: codeTLS, from: it.addr.id}).put(&b)
	return b[:]
}
