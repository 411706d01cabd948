package conn

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/keypair"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucp/internal/selection"
	"github.com/gucx/gucx/wireup"
)

// newPeers returns a worker with that address, with a new key.
func newPeers(t testing.TB) (p *Peers, packed []byte) {
	addr := &wireup.Address{}
	p = &Peers{}
	require.NoError(t, p.Init(addr, func(*wireup.Address) selection.Reacher { return nil }))
	packed, err := addr.Pack()
	require.NoError(t, err)
	return p, packed
}

// TestProof: a proof is valid for one message from one worker to another one only.
func TestProof(t *testing.T) {
	a, addrA := newPeers(t)
	b, addrB := newPeers(t)
	c, addrC := newPeers(t)
	find := func(at *Peers, addr []byte) *Peer {
		p, err := at.Find(addr)
		require.NoError(t, err)
		return p
	}
	msg := []byte("a message")
	sealed := find(a, addrB).Seal(bytes.Clone(msg))
	assert.Equal(t, msg, Unsealed(sealed))
	assert.Len(t, sealed, len(msg)+ProofLen)
	assert.True(t, find(b, addrA).Proves(sealed))
	assert.False(t, find(b, addrC).Proves(sealed), "of another worker")
	assert.False(t, find(c, addrA).Proves(sealed), "for another worker")
	assert.False(t, find(b, addrA).Proves(sealed[:ProofLen-1]))
	edit := testenv.Editor(sealed)
	for i := range sealed {
		assert.False(t, find(b, addrA).Proves(edit(i, sealed[i]^1)), "byte %d", i)
	}
	assert.True(t, find(b, addrB).Proves(find(b, addrB).Seal(nil)), "the own worker")
}

// TestProof_WeakKey: no proof is valid for a key of low order.
func TestProof_WeakKey(t *testing.T) {
	a, _ := newPeers(t)
	weak := &wireup.Address{Key: wireup.PublicKey{1}} // X25519 of it and any key is 0
	packed, err := weak.Pack()
	require.NoError(t, err)
	p, err := a.Find(packed)
	require.NoError(t, err)
	other := Peer{Addr: weak, secret: make(keypair.Secret, keypair.Len)}
	assert.False(t, p.Proves(other.Seal([]byte("a message"))))
}

func BenchmarkProof(b *testing.B) {
	x, addr := newPeers(b)
	p, err := x.Find(addr)
	require.NoError(b, err)
	msg := make([]byte, 300, 400)
	b.Run("secret", func(b *testing.B) {
		for b.Loop() {
			sharedSecret(&x.pair, (*keypair.PublicKey)(&p.Addr.Key))
		}
	})
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			p.Seal(msg)
		}
	})
}
