package kvstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newTable(keys, keyLen, valueLen int) *table {
	t := &table{shape: shapeFor(keys, keyLen, valueLen)}
	t.mem = make([]byte, t.len())
	return t
}

// TestTable_Model: after random updates a table has what a map has, each key can be reached from its home, and the
// header says when keys moved.
func TestTable_Model(t *testing.T) {
	const keys = 40
	table, want := newTable(keys, 8, 8), map[string]string{}
	for n := range 1000 {
		key := fmt.Sprint(rand.N(keys))
		switch {
		case rand.N(2) == 0:
			_, there := want[key]
			assert.Equal(t, there, table.remove([]byte(key)))
			delete(want, key)
		default:
			require.True(t, table.hasRoom([]byte(key)))
			want[key] = fmt.Sprint(n)
			table.put(entry{key: []byte(key), value: []byte(want[key]), number: uint64(n)})
		}
		require.Equal(t, len(want), table.used)
		for i := range keys {
			key := fmt.Sprint(i)
			value, there := want[key]
			at, found := table.find([]byte(key))
			require.Equal(t, there, found, key)
			if found {
				require.Equal(t, value, string(table.at(at).value))
			}
		}
	}
	table.clear()
	assert.Zero(t, table.used)
	_, found := table.find([]byte("1"))
	assert.False(t, found)
}

// FuzzDecode: slots and messages may hold anything.
func FuzzDecode(f *testing.F) {
	slot := make([]byte, 64)
	writeSlot(slot, entry{key: []byte("key"), value: []byte("value"), number: 7})
	f.Add(slot)
	f.Add(make([]byte, slotHead))
	f.Add(appendPut(nil, "key", []byte("value")))
	f.Add(appendUpdate(nil, &update{entry: entry{key: []byte("key"), value: []byte("value"), number: 7}, remove: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, value, err := parsePut(b); err == nil {
			assert.Equal(t, string(b), string(appendPut(nil, string(key), value)))
		}
		if u, rest, ok := cutUpdate(b); ok && b[8] <= 1 {
			assert.Equal(t, string(b), string(append(appendUpdate(nil, u), rest...)))
		}
		slot := append(b, make([]byte, slotHead)...)
		if e, err := readSlot(slot); err == nil && len(e.key) > 0 {
			again := make([]byte, len(slot))
			writeSlot(again, e)
			n := slotHead + len(e.key) + len(e.value)
			assert.Equal(t, slot[:n], again[:n])
		}
	})
}

// TestShape: a client refuses shapes that no server has.
func TestShape(t *testing.T) {
	assert.True(t, shapeFor(1, 1, 1).valid())
	assert.True(t, shapeFor(1<<30, MaxKey, MaxValue).valid())
	for _, s := range []shape{{}, {Slots: 1}, {SlotLen: 100}, {Slots: -1, SlotLen: 100}, {Slots: 1, SlotLen: slotHead - 1},
		{Slots: 1, SlotLen: 1 << 30}, {Slots: 1 << 62, SlotLen: 100}} {
		assert.False(t, s.valid(), "%+v", s)
	}
}
