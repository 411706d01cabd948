package keypair

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newPair(t *testing.T) Pair {
	p, err := New()
	require.NoError(t, err)
	return p
}

// TestSecretWith: two pairs share a secret that a third one does not have.
func TestSecretWith(t *testing.T) {
	a, b, c := newPair(t), newPair(t), newPair(t)
	secret := func(p *Pair, peer *PublicKey) Secret {
		s, err := p.SecretWith(peer)
		require.NoError(t, err)
		return s
	}
	ab := secret(&a, &b.Public)
	assert.Equal(t, ab, secret(&b, &a.Public))
	assert.NotEqual(t, ab, secret(&a, &c.Public))
	assert.NotEqual(t, ab, secret(&c, &a.Public))
	assert.NotZero(t, a.Public.ID())
	assert.NotEqual(t, a.Public.ID(), b.Public.ID())
}

// TestSecretWith_WeakKey: with a key of low order the secret of any pair would be 0.
func TestSecretWith_WeakKey(t *testing.T) {
	p := newPair(t)
	for _, weak := range []PublicKey{{}, {1}} {
		s, err := p.SecretWith(&weak)
		assert.ErrorIs(t, err, ErrWeakKey)
		assert.Nil(t, s)
	}
}

// TestMAC: the code depends on the secret and on each byte, and not on how the bytes are cut.
func TestMAC(t *testing.T) {
	s := Secret("secret")
	code := s.MAC([]byte("one"), []byte("two"))
	assert.Len(t, code, MACLen)
	assert.Equal(t, code, s.MAC([]byte("onetwo")))
	assert.NotEqual(t, code, s.MAC([]byte("onetwp")))
	assert.NotEqual(t, code, Secret("Secret").MAC([]byte("onetwo")))
}
