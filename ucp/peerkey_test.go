package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/internal/testenv/faketp"
	"github.com/gucx/gucx/internal/testenv/tlsets"
)

// keys returns the number of unpacked keys of an EP.
func (e *EP) keyCount() (n int) {
	for k := e.keys; k != nil; k = k.next {
		n++
	}
	return n
}

// TestPeerKeys: an EP caches a few keys of messages, and closes them with itself.
func TestPeerKeys(t *testing.T) {
	eachScheme(t, func(t *testing.T, p *rndvPair) {
		if p.a.ctx.cfg.RndvScheme == "am" {
			t.Skip("no keys")
		}
		to := p.b.memOf(t, tlsets.LongMessage)
		move := func(from *Mem) {
			into := &OpParams{Mem: to}
			r, err := p.a.ep.SendActive(1, nil, from.Bytes(), &OpParams{Mem: from})
			require.NoError(t, err)
			m := p.announcement()
			require.NoError(t, p.finish(m.Recv(to.Bytes(), into)))
			m.Release()
			require.NoError(t, p.finish(r, nil))
		}
		move(p.from)
		far := p.b.w.eps // the EPs of the receiver
		var keys []*EP
		for e := range far.All() {
			keys = append(keys, e)
		}
		for e := range p.a.w.eps.All() {
			keys = append(keys, e)
		}
		count := func() (n int) {
			for _, e := range keys {
				n += e.keyCount()
			}
			return n
		}
		one := count()
		for range 5 {
			move(p.from)
		}
		assert.Equal(t, one, count(), "the same key again")
		for range 2 * maxPeerKeys {
			mem, err := p.a.ctx.MemAlloc(tlsets.LongMessage)
			require.NoError(t, err)
			move(mem)
			require.NoError(t, mem.Close())
		}
		assert.LessOrEqual(t, count(), one+maxPeerKeys)
		require.NoError(t, p.finish(p.a.ep.Close(CloseFlush)))
		p.a.key.Close()
		p.idle()
		assert.Zero(t, count())
	})
}

// TestPeerKeys_KeyOfTwoOperations: a key that two operations use closes when both have completed, also if the EP has had other
// messages since.
func TestPeerKeys_KeyOfTwoOperations(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	p.connect()
	e := p.a.ep
	m := e.messaging()
	before := e.keyCount()
	packed := p.b.mem.Pack()
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
	assert.Equal(t, before, e.keyCount())
}

// TestPeerKeys_InUse: more keys than the cache has may be in use at a time.
func TestPeerKeys_InUse(t *testing.T) {
	p, _ := fakePair(t, Config{}, faketp.LikeSM())
	p.connect()
	e := p.a.ep
	m := e.messaging()
	before := e.keyCount()
	var mems []*Mem
	var keys []*RKey
	for range maxPeerKeys + 2 {
		mem, err := p.b.ctx.MemMap(make([]byte, 8))
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
	assert.Equal(t, before+maxPeerKeys, e.keyCount())
	packed := mems[0].Pack()
	testenv.NoAllocs(t, "a key that is there", func() {
		k, _ := m.unpack(packed)
		keyDone(k)
	})
	m.closeKeys()
	assert.Equal(t, before, e.keyCount())
	for _, mem := range mems {
		require.NoError(t, mem.Close())
	}
}
