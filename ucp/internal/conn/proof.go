package conn

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"

	"github.com/gucx/gucx/wireup"
)

// Each worker has a random key pair. Its address contains the public key, and each of its
// handshake messages ends with a proof: a code that only the two workers can compute. So nobody
// can ask for, change or close a connection in the name of another worker; docs/design/0008-identity.md.

// ProofLen is the length of a proof in bytes.
const ProofLen = 16

// Identity is the key pair of a worker.
type Identity struct {
	private *ecdh.PrivateKey
	Public  wireup.PublicKey
}

// NewIdentity makes a random key pair, with a UUID that is not 0.
func NewIdentity() (id Identity, err error) {
	for id.Public.UUID() == 0 {
		if id.private, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return id, err
		}
		id.Public = wireup.PublicKey(id.private.PublicKey().Bytes())
	}
	return id, nil
}

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
		p.secret = p.identity.sharedWith(&p.Addr.Key)
	}
	mac := hmac.New(sha256.New, p.secret)
	mac.Write(msg)
	return mac.Sum(nil)[:ProofLen]
}

// sharedWith returns the secret of two workers, which takes about 50 µs. A public key of low order
// has no private one, and no secret: the result is random then, so that no message proves anything.
func (id *Identity) sharedWith(peer *wireup.PublicKey) []byte {
	remote, err := ecdh.X25519().NewPublicKey(peer[:])
	if err == nil {
		secret, err := id.private.ECDH(remote)
		if err == nil {
			return secret
		}
	}
	secret := make([]byte, wireup.KeyLen)
	rand.Read(secret) // never returns an error since Go 1.24
	return secret
}
