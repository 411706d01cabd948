package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
)

// TestPeerKeys_KeyOfTwoOperations: a key that two operations use closes when both have completed, also if the EP has had other
// messages since.
func TestPeerKeys_KeyOfTwoOperations(t *testing.T) {
	p, _ := fakePair(t, faketp.LikeSM())
	e := p.ep
	m := e.messaging()
	before := e.KeyCount()
	packed := p.mem.Pack()
	first, err := m.unpack(packed)
	require.NoError(t, err)
	second, err := m.unpack(packed)
	require.NoError(t, err)
	require.Same(t, first, second)
	m.closed, e.msgs = true, nil
	m.closeKeys()
	e.messaging()
	keyDone(first)
	assert.Same(t, e, second.ep, "the other operation uses it")
	keyDone(second)
	assert.Equal(t, before, e.KeyCount())
}

// TestPeerKeys_InUse: more keys than the cache has may be in use at a time.
func TestPeerKeys_InUse(t *testing.T) {
	p, _ := fakePair(t, faketp.LikeSM())
	e := p.ep
	m := e.messaging()
	before := e.KeyCount()
	var mems []*Mem
	var keys []*RKey
	for range maxPeerKeys + 2 {
		mem, err := p.w[1].Context().MemMap(make([]byte, 8))
		require.NoError(t, err)
		mems = append(mems, mem)
		k, err := m.unpack(mem.Pack())
		require.NoError(t, err)
		keys = append(keys, k)
	}
	again, err := m.unpack(mems[3].Pack())
	require.NoError(t, err)
	assert.Same(t, keys[3], again)
	_, err = m.unpack([]byte("no key"))
	assert.Error(t, err)
	for _, k := range append(keys, again) {
		assert.Same(t, e, k.ep, "open")
		keyDone(k)
	}
	assert.Equal(t, before+maxPeerKeys, e.KeyCount())
	packed := mems[0].Pack()
	testenv.NoAllocs(t, "a key that is there", func() {
		k, _ := m.unpack(packed)
		keyDone(k)
	})
	m.closeKeys()
	assert.Equal(t, before, e.KeyCount())
	for _, mem := range mems {
		require.NoError(t, mem.Close())
	}
}
