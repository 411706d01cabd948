package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRTS(t *testing.T) {
	for _, key := range [][]byte{{}, []byte("key")} {
		want := RTS{ID: 1, Length: 2, Addr: 3, Key: key}
		b := want.Append(nil)
		var got RTS
		rest, ok := got.Unpack(append(b, "header"...))
		require.True(t, ok)
		assert.Equal(t, want, got)
		assert.Equal(t, "header", string(rest))
		_, ok = got.Unpack(b[:len(b)-1])
		assert.False(t, ok, "a byte too few")
	}
	long := RTS{Key: make([]byte, maxKeyLen+1)}
	_, ok := new(RTS).Unpack(long.Append(nil))
	assert.False(t, ok, "no key is so long")
}

func TestRTR(t *testing.T) {
	for _, key := range [][]byte{{}, []byte("key")} {
		want := RTR{EP: 1, ID: 2, Recv: 3, Length: 4, Addr: 5, Key: key}
		b := want.Append(nil)
		var got RTR
		require.True(t, got.Unpack(b))
		assert.Equal(t, want, got)
		assert.False(t, got.Unpack(b[:RTRLen-1]))
		assert.False(t, got.Unpack(append(b, make([]byte, maxKeyLen+1)...)), "no key is so long")
	}
}

// TestRendezvous_ExactLimits: a key may be maxKeyLen bytes long, and not one more.
func TestRendezvous_ExactLimits(t *testing.T) {
	for _, n := range []int{maxKeyLen - 1, maxKeyLen, maxKeyLen + 1} {
		key := make([]byte, n)
		rts, rtr := RTS{Key: key}, RTR{Key: key}
		_, ok := new(RTS).Unpack(rts.Append(nil))
		assert.Equal(t, n <= maxKeyLen, ok, "RTS with a key of %d bytes", n)
		assert.Equal(t, n <= maxKeyLen, new(RTR).Unpack(rtr.Append(nil)), "RTR with a key of %d bytes", n)
	}
}

func FuzzRTS(f *testing.F) {
	m := RTS{ID: 1, Length: 2, Addr: 3, Key: []byte("key")}
	f.Add(m.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m RTS
		if rest, ok := m.Unpack(b); ok {
			assert.Equal(t, b, append(m.Append(nil), rest...))
		}
	})
}

func FuzzRTR(f *testing.F) {
	m := RTR{EP: 1, ID: 2, Recv: 3, Length: 4, Addr: 5, Key: []byte("key")}
	f.Add(m.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m RTR
		if m.Unpack(b) {
			assert.Equal(t, b, m.Append(nil))
		}
	})
}
