package conn

import (
	"crypto/hmac"
	"crypto/rand"

	"github.com/gucx/gucx/internal/keypair"
)

// Each worker has a random key pair. Its address contains the public key, and each of its
// handshake messages ends with a proof: a code that only the two workers can compute. So no other worker
// can request, change or close a connection in the name of this one; see docs/design/0008-identity.md.

// ProofLen is the length of a proof in bytes.
const ProofLen = 16

// Seal appends the proof that this worker has sent msg to the peer.
func (p *Peer) Seal(msg []byte) []byte { return append(msg, p.proof(msg)...) }

// Unsealed is a message without its proof; nil if it is too short to have one.
func Unsealed(sealed []byte) []byte {
	if len(sealed) < ProofLen {
		return nil
	}
	return sealed[:len(sealed)-ProofLen]
}

// Proves reports whether the peer has sent a message to this worker.
func (p *Peer) Proves(sealed []byte) bool {
	msg := Unsealed(sealed)
	return msg != nil && hmac.Equal(p.proof(msg), sealed[len(msg):])
}

// proof is the code that authenticates a message between this worker and the peer.
func (p *Peer) proof(msg []byte) []byte {
	if p.secret == nil {
		p.secret = sharedSecret(p.pair, (*keypair.PublicKey)(&p.Addr.Key))
	}
	return p.secret.MAC(msg)[:ProofLen]
}

// sharedSecret returns the secret of two workers. A weak key has no secret: the result is random then, so
// that no message proves anything.
func sharedSecret(own *keypair.Pair, peer *keypair.PublicKey) keypair.Secret {
	s, err := own.SecretWith(peer)
	if err != nil {
		s = make(keypair.Secret, keypair.Len)
		rand.Read(s) // never returns an error since Go 1.24
	}
	return s
}
