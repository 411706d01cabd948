package sm

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct"
)

// allocate allocates memory with the given rights on the other side.
func (w *two) allocate(n int, access uct.Access) (uct.Mem, uct.RKey) {
	mem, err := w.b.md.Ext().Alloc.Alloc(n, access)
	require.NoError(w.t, err)
	return mem, uct.RKey(handle(mem))
}

// TestGrant: a grant is valid only for its key, range and
// rights, and until the memory is closed.
func TestGrant(t *testing.T) {
	w := openTwo(t, Config{})
	word := []byte("12345678")
	put := func(addr uint64, key uct.RKey) error { return w.ab.PutShort(word, addr, key) }
	get := func(addr uint64, key uct.RKey) error {
		_, err := w.ab.GetBcopy(make([]byte, len(word)), addr, key, nil)
		return err
	}
	const n = 4096
	readable, readKey := w.allocate(n, uct.AccessRemoteRead)
	writable, writeKey := w.allocate(n, uct.AccessRemoteWrite)
	for _, tc := range []struct {
		mem          uct.Mem
		key, another uct.RKey
		do, rejected func(addr uint64, key uct.RKey) error
	}{
		{readable, readKey, writeKey, get, put},
		{writable, writeKey, readKey, put, get},
	} {
		first, last := tc.mem.Addr(), tc.mem.Addr()+n-uint64(len(word))
		require.NoError(t, tc.do(first, tc.key))
		require.EqualValues(t, tc.key, w.ab.grant.key)
		require.NoError(t, tc.do(last, tc.key))
		for _, addr := range []uint64{first - 1, last + 1, first + n, 0, ^uint64(0)} {
			assert.Equal(t, ucs.ErrRemoteAccess, tc.do(addr, tc.key), "%#x", addr)
		}
		assert.Equal(t, ucs.ErrRemoteAccess, tc.rejected(first, tc.key), "no such right")
		assert.Equal(t, ucs.ErrRemoteAccess, tc.do(first, tc.another), "of the other region")
		require.NoError(t, tc.do(first, tc.key))
		require.NoError(t, tc.mem.Close())
		require.EqualValues(t, tc.key, w.ab.grant.key, "it is known still")
		assert.Equal(t, ucs.ErrRemoteAccess, tc.do(first, tc.key), "closed")
		assert.Equal(t, ucs.ErrRemoteAccess, tc.do(first, 0), "what is in the place of its key now")
	}
}

// TestGrant_Short: a region of fewer than 8 bytes can be accessed, but not by 8 bytes.
func TestGrant_Short(t *testing.T) {
	w := openTwo(t, Config{})
	word, buf := []byte("12345678"), make([]byte, wordLen)
	for n := 1; n < wordLen; n++ {
		mem, key := w.allocate(n, uct.AccessAll)
		require.NoError(t, w.ab.PutShort(word[:n], mem.Addr(), key))
		clear(buf)
		_, err := w.ab.GetBcopy(buf[:n], mem.Addr(), key, nil)
		require.NoError(t, err)
		assert.Equal(t, word[:n], buf[:n])
		assert.Equal(t, ucs.ErrRemoteAccess, w.ab.PutShort(word, mem.Addr(), key), "%d bytes", n)
		_, err = w.ab.GetBcopy(buf, mem.Addr(), key, nil)
		assert.Equal(t, ucs.ErrRemoteAccess, err, "%d bytes", n)
		require.NoError(t, mem.Close())
	}
}

// TestGrant_ClosedEP: a closed EP does not write to the region of its latest access, which is unmapped.
func TestGrant_ClosedEP(t *testing.T) {
	w := openTwo(t, Config{})
	mem, key := w.allocate(4096, uct.AccessAll)
	word := []byte("12345678")
	require.NoError(t, w.ab.PutShort(word, mem.Addr(), key))
	l := w.ab.outLink
	require.NotZero(t, l.grant.writes)
	require.NoError(t, w.ab.Close())
	assert.Equal(t, noGrant, l.grant)
	assert.Equal(t, uct.ErrClosed, w.ab.PutShort(word, mem.Addr(), key))
	_, err := w.ab.GetBcopy(word, mem.Addr(), key, nil)
	assert.Equal(t, uct.ErrClosed, err)
	require.NoError(t, mem.Close())
}

// TestGrant_PeerGone: a put of 8 bytes does not check whether the peer is alive. A flush does, and returns
// the reason when Progress has failed the EP.
func TestGrant_PeerGone(t *testing.T) {
	w := openTwo(t, Config{})
	word := []byte("12345678")
	mem, key := w.allocate(4096, uct.AccessAll)
	require.NoError(t, w.ab.PutShort(word, mem.Addr(), key))
	pending, err := w.ab.Flush(nil)
	require.NoError(t, err)
	require.False(t, pending)
	w.ab.markLost()
	require.NoError(t, w.ab.PutShort(word, mem.Addr(), key))
	_, err = w.ab.Flush(nil)
	assert.Equal(t, uct.ErrNoResource, err)
	_, err = w.a.iface.Flush(nil)
	assert.Equal(t, uct.ErrNoResource, err, "of all EPs")
	var again error
	require.NoError(t, w.ab.AddPending(&uct.PendingReq{Func: func(*uct.PendingReq) error {
		_, again = w.ab.Flush(nil)
		return again
	}}))
	w.until(func() bool { return again != nil })
	assert.ErrorIs(t, again, uct.ErrEPFailed)
	assert.ErrorIs(t, again, ucs.ErrConnReset)
	_, err = w.a.iface.Flush(nil)
	assert.NoError(t, err, "of EPs that have not failed")
	require.NoError(t, mem.Close())
}

// TestGetMapped: mapped memory is read in the call, also memory that the peer has allocated since, and in
// several visits. It fails without the access right.
func TestGetMapped(t *testing.T) {
	w := openTwo(t, Config{})
	small, smallKey := w.allocate(4096, uct.AccessRemoteRead)
	copy(small.Bytes(), "12345678")
	buf := make([]byte, 8)
	require.True(t, w.ab.GetMapped(buf, small.Addr(), smallKey))
	assert.Equal(t, "12345678", string(buf))
	const n = 2*visitMax + 100
	large, largeKey := w.allocate(n, uct.AccessRemoteRead)
	for i := range large.Bytes() {
		large.Bytes()[i] = byte(i*7 + i>>9)
	}
	all := make([]byte, n)
	require.True(t, w.ab.GetMapped(all, large.Addr(), largeKey))
	assert.True(t, bytes.Equal(large.Bytes(), all))
	assert.False(t, w.ab.GetMapped(all, large.Addr()+1, largeKey), "a byte behind it")
	assert.False(t, w.ab.GetMapped(buf, small.Addr(), largeKey), "the key of other memory")
	hidden, hiddenKey := w.allocate(4096, uct.AccessRemoteWrite)
	assert.False(t, w.ab.GetMapped(buf, hidden.Addr(), hiddenKey), "without the right")
	require.NoError(t, large.Close())
	assert.False(t, w.ab.GetMapped(buf, large.Addr(), largeKey), "it has gone")
	require.NoError(t, hidden.Close())
	require.NoError(t, small.Close())
}

// TestGrant_ArenaGrows: the grant is updated when the arena is mapped at another address.
func TestGrant_ArenaGrows(t *testing.T) {
	w := openTwo(t, Config{})
	word := []byte("12345678")
	small, smallKey := w.allocate(4096, uct.AccessAll)
	require.NoError(t, w.ab.PutShort(word, small.Addr(), smallKey))
	before := w.ab.arenaLen
	large, largeKey := w.allocate(16<<20, uct.AccessAll)
	require.NoError(t, w.ab.PutShort(word, large.Addr()+16<<20-8, largeKey))
	require.Greater(t, w.ab.arenaLen, before)
	require.NoError(t, w.ab.PutShort([]byte("abcdefgh"), small.Addr()+8, smallKey))
	assert.Equal(t, "12345678abcdefgh", string(small.Bytes()[:16]))
	assert.Equal(t, "12345678", string(large.Bytes()[16<<20-8:]))
	require.NoError(t, large.Close())
	require.NoError(t, small.Close())
}

// TestCMA_PeerDiesDuringGet: if the peer dies, another process may have its pid and a get may read its memory: such a get
// does not succeed.
func TestCMA_PeerDiesDuringGet(t *testing.T) {
	needCMA(t)
	w := openTwo(t, Config{})
	const n = 16 * visitMax
	mem, key := w.register(n, uct.AccessAll)
	buf := make([]byte, n)
	for known := false; !known; {
		var over atomic.Bool
		last := make(chan uint64)
		go func() { // as the goroutine of the link
			for _, region := w.ab.guard.Visits(); region != regionOf(uint64(key)) && !over.Load(); _, region = w.ab.guard.Visits() {
				runtime.Gosched()
			}
			w.ab.markLost()
			last <- w.ab.visits()
		}()
		_, err := w.ab.GetZcopy([]uct.IOV{{Buf: buf}}, mem.Addr(), key, nil)
		over.Store(true)
		begun := w.ab.visits() > <-last // a visit, since the peer had gone
		if known = err != nil || begun; known {
			assert.Equal(t, uct.ErrNoResource, err)
		}
		w.ab.hold.And(^uint32(holdDown)) // the machine was too busy: once more
	}
	require.NoError(t, mem.Close())
}
