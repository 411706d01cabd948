package tcp

import (
	"crypto/hmac"
	"fmt"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs"
)

// The address of an iface contains a public key, and both handshake messages prove that their
// sender has the private key. So a peer can use only the address of its own iface;
// docs/design/0009-tcp-identity.md explains the threats. Handshake messages identify the receiver
// by the ID of its key, and tables use the whole key.

const proofLen = keypair.MACLen

// pairKey is the shared key of two ifaces. Only they can compute it.
type pairKey keypair.Secret

// pairWith computes the shared key of an iface and a peer that both have the token; "" means no
// token. The error is ErrInvalidAddr.
func pairWith(own *keypair.Pair, peer *keypair.PublicKey, token string) (pairKey, error) {
	k, err := own.SecretWith(peer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ucs.ErrInvalidAddr, err)
	}
	if token != "" {
		k = keypair.Secret(token).MAC(k)
	}
	return pairKey(k), nil
}

// proof returns the MAC of a handshake message on a link with this channel binding.
func (k pairKey) proof(b *[helloLen]byte, binding []byte) []byte {
	return keypair.Secret(k).MAC(b[:offProof], binding)
}

// sign writes the proof into an encoded handshake message.
func (k pairKey) sign(b *[helloLen]byte, binding []byte) { copy(b[offProof:], k.proof(b, binding)) }

// proves reports whether the sender of a handshake message has the private key of its iface, and is
// the peer of the TLS session to which binding belongs.
func (k pairKey) proves(b *[helloLen]byte, binding []byte) bool {
	return k != nil && hmac.Equal(b[offProof:], k.proof(b, binding))
}
