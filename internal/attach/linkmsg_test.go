package attach

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinkMsg_Layout(t *testing.T) {
	b := linkMsg{msgLeft, 0x0102030405060708}.encode()
	assert.Equal(t, []byte{'l', 'i', 'n', 'k', 3, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1}, b)
}

func TestDecodeLinkMsg_Refuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(b []byte) []byte
	}{
		{"empty", func([]byte) []byte { return nil }},
		{"short", func(b []byte) []byte { return b[:linkMsgLen-1] }},
		{"long", func(b []byte) []byte { return append(b, 0) }},
		{"magic", func(b []byte) []byte { b[0] ^= 1; return b }},
		{"type 0", func(b []byte) []byte { b[4] = 0; return b }},
		{"type 6", func(b []byte) []byte { b[4] = 6; return b }},
		{"type 257", func(b []byte) []byte { b[5] = 1; return b }},
		{"reserved", func(b []byte) []byte { b[6] = 1; return b }},
		{"no link", func(b []byte) []byte { clear(b[8:]); return b }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decodeLinkMsg(tt.edit(linkMsg{msgMove, 7}.encode()))
			assert.ErrorIs(t, err, errMalformed)
		})
	}
}

// TestNewLinkID: names differ, and are none that a message may not have.
func TestNewLinkID(t *testing.T) {
	seen := map[linkID]bool{}
	for range 100 {
		id := newLinkID()
		require.NotZero(t, id)
		require.False(t, seen[id])
		seen[id] = true
	}
}
