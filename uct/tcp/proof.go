package tcp

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gucx/gucx/ucs"
)

// The address of an iface contains a public key (X25519), and both messages of the handshake
// carry a proof that their sender has the private key. So a peer speaks for its own iface only;
// docs/design/0009-tcp-identity.md says what that protects against.

const (
	keyLenX25519 = 32
	proofLen     = sha256.Size
)

// publicKey is the public key of an iface.
type publicKey [keyLenX25519]byte

// id is the short form of the key in handshake messages. A peer can choose a key with the id of
// another iface, so tables go by the key.
func (k *publicKey) id() uint64 { return binary.LittleEndian.Uint64(k[:]) }

// identity is the key pair of an iface.
type identity struct {
	private *ecdh.PrivateKey
	public  publicKey
}

// newIdentity makes a random key pair, with an id that is not 0.
func newIdentity() (id identity, err error) {
	for {
		if id.private, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return id, err
		}
		id.public = publicKey(id.private.PublicKey().Bytes())
		if id.public.id() != 0 {
			return id, nil
		}
	}
}

// pairKey is the shared key of two ifaces, which only they can compute.
type pairKey []byte

var errWeakKey = errors.New("its public key is of low order")

// pairWith computes the key of a pair, which takes about 50 µs. The error is ErrInvalidAddr.
func (id *identity) pairWith(peer *publicKey) (pairKey, error) {
	remote, err := ecdh.X25519().NewPublicKey(peer[:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ucs.ErrInvalidAddr, err)
	}
	k, err := id.private.ECDH(remote)
	if err != nil { // all zero
		return nil, fmt.Errorf("%w: %w", ucs.ErrInvalidAddr, errWeakKey)
	}
	return k, nil
}

// proof is the code that authenticates a handshake message on a link with that binding.
func (k pairKey) proof(b *[helloLen]byte, binding []byte) []byte {
	mac := hmac.New(sha256.New, k)
	mac.Write(b[:offProof])
	mac.Write(binding)
	return mac.Sum(nil)
}

// sign puts the proof into an encoded handshake message.
func (k pairKey) sign(b *[helloLen]byte, binding []byte) { copy(b[offProof:], k.proof(b, binding)) }

// proves reports whether the sender of a handshake message has the private key of its iface, and
// is the other end of the TLS session to which binding belongs.
func (k pairKey) proves(b *[helloLen]byte, binding []byte) bool {
	return k != nil && hmac.Equal(b[offProof:], k.proof(b, binding))
}
