package base

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
)

func keyOf(t *testing.T, m *Memory, mem uct.Mem) uct.RKey {
	packed, err := mem.PackRKey(nil)
	require.NoError(t, err)
	key, err := m.UnpackRKey(packed)
	require.NoError(t, err)
	return key
}

func TestMemory_ChecksRequestsOfPeers(t *testing.T) {
	var m Memory
	mem, err := m.Alloc(100, uct.AccessRemoteWrite)
	require.NoError(t, err)
	key, addr := keyOf(t, &m, mem), mem.Addr()
	for _, tc := range []struct {
		name  string
		key   uct.RKey
		raddr uint64
		n     int
		ok    bool
	}{
		{"whole", key, addr, 100, true},
		{"last", key, addr + 99, 1, true},
		{"nothing at the end", key, addr + 100, 0, true},
		{"beyond", key, addr + 99, 2, false},
		{"before", key, addr - 1, 1, false},
		{"wraps", key, ^uint64(0), 2, false},
		{"other key", key + 1, addr, 1, false},
		{"no key", 0, addr, 1, false},
	} {
		data := make([]byte, tc.n)
		assert.Equal(t, tc.ok, m.Write(tc.key, tc.raddr, data), tc.name)
		assert.False(t, m.Read(tc.key, tc.raddr, data), "%s: not its right", tc.name)
	}
	require.True(t, m.Write(key, addr+98, []byte("ab")))
	assert.Equal(t, "ab", string(mem.Bytes()[98:]))
	require.NoError(t, mem.Close())
	require.NoError(t, mem.Close())
	assert.False(t, m.Write(key, addr, []byte{1}), "after Close")
}

func TestMemory_Registers(t *testing.T) {
	var m Memory
	buf := []byte("gucx")
	mem, err := m.Reg(buf, uct.AccessRemoteRead)
	require.NoError(t, err)
	got := make([]byte, 2)
	require.True(t, m.Read(keyOf(t, &m, mem), mem.Addr()+1, got))
	assert.Equal(t, "uc", string(got))
	assert.ErrorIs(t, m.Close(func() error { return nil }), uct.ErrBusy)
	require.NoError(t, mem.Close())

	_, err = m.Reg(nil, uct.AccessRemoteRead)
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	_, err = m.Reg(buf, 1<<7)
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	_, err = m.Alloc(0, uct.AccessAll)
	assert.ErrorIs(t, err, uct.ErrInvalidParam)
	_, err = m.UnpackRKey(make([]byte, KeyLen+1))
	assert.ErrorIs(t, err, uct.ErrInvalidRKey)
	require.NoError(t, m.Close(func() error { return nil }))
	_, err = m.Reg(buf, uct.AccessRemoteRead)
	assert.ErrorIs(t, err, uct.ErrClosed)
}
