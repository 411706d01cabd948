package tcp

import (
	"crypto/hmac"
	"fmt"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/ucs"
)

// The address of an iface contains a public key, and both messages of the handshake carry a proof that
// their sender has the private key. So a peer speaks for its own iface only;
// docs/design/0009-tcp-identity.md says what that protects against. The short form of a key in handshake
// messages is its ID; tables go by the whole key.

const proofLen = keypair.MACLen

// pairKey is the shared key of two ifaces, which only they can compute.
type pairKey keypair.Secret

// pairWith computes the key of an iface and a peer which have the token; an empty token means none. The
// error is ErrInvalidAddr.
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

// proof is the code that authenticates a handshake message on a link with that binding.
func (k pairKey) proof(b *[helloLen]byte, binding []byte) []byte {
	return keypair.Secret(k).MAC(b[:offProof], binding)
}

// sign puts the proof into an encoded handshake message.
func (k pairKey) sign(b *[helloLen]byte, binding []byte) { copy(b[offProof:], k.proof(b, binding)) }

// proves reports whether the sender of a handshake message has the private key of its iface, and
// is the other end of the TLS session to which binding belongs.
func (k pairKey) proves(b *[helloLen]byte, binding []byte) bool {
	return k != nil && hmac.Equal(b[offProof:], k.proof(b, binding))
}
