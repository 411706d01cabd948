// Package keypair has the X25519 key pairs by which workers and ifaces prove which of them has sent a
// handshake message: a message ends with a code that only two key pairs can compute (RFC 7748, RFC 2104).
//
// Any goroutine may use a Pair and a Secret at the same time as others.
package keypair

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// Len is the length of a public key in bytes.
const Len = 32

// MACLen is the length of a code in bytes.
const MACLen = sha256.Size

// ErrWeakKey says that a public key is of low order: no private key belongs to it.
var ErrWeakKey = errors.New("the public key is of low order")

// PublicKey is the public half of a Pair.
type PublicKey [Len]byte

// ID returns the first 8 bytes of the key. A peer can choose a key with the ID of another key.
func (k *PublicKey) ID() uint64 { return binary.LittleEndian.Uint64(k[:]) }

// Pair is a random key pair.
type Pair struct {
	private *ecdh.PrivateKey
	Public  PublicKey
}

// New returns a random key pair. The ID of its public key is not 0.
func New() (p Pair, err error) {
	for p.Public.ID() == 0 {
		if p.private, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return Pair{}, err
		}
		p.Public = PublicKey(p.private.PublicKey().Bytes())
	}
	return p, nil
}

// Secret is what the owners of two key pairs share.
type Secret []byte

// SecretWith returns the secret of p and the owner of peer, which takes about 60 µs (BenchmarkProof of
// ucp/internal/conn). ErrWeakKey if peer is of low order.
func (p *Pair) SecretWith(peer *PublicKey) (Secret, error) {
	remote, err := ecdh.X25519().NewPublicKey(peer[:])
	if err != nil {
		return nil, err
	}
	s, err := p.private.ECDH(remote)
	if err != nil { // the secret would be 0
		return nil, ErrWeakKey
	}
	return s, nil
}

// MAC returns the code of the parts, one after the other.
func (s Secret) MAC(parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, s)
	for _, b := range parts {
		mac.Write(b)
	}
	return mac.Sum(nil)
}
