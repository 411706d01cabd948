package uctlayer

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/perftest/internal/layers/layer"
	"github.com/gucx/gucx/perftest/internal/measure/pattern"
)

// message is number n as it should arrive.
func message(n uint64, size int) []byte {
	b := make([]byte, max(size, numberLen))
	pattern.Fill(b[:size], 7)
	var number [numberLen]byte
	binary.LittleEndian.PutUint64(number[:], n)
	copy(b[:min(size, numberLen)], number[:])
	return b[:size]
}

func TestInbox_NoticesWhatIsWrong(t *testing.T) {
	spoil := func(size, at int) []byte {
		b := message(2, size)
		b[at]++
		return b
	}
	for _, c := range []struct {
		name     string
		size     int
		thorough bool
		third    []byte
		want     string
	}{
		{"all well", 100, true, message(2, 100), ""},
		{"all well, short", 3, false, message(2, 3), ""},
		{"all well, number only", 8, true, message(2, 8), ""},
		{"one is missing", 100, false, message(3, 100), "has the number"},
		{"one is missing, short", 3, false, message(3, 3), "has the number"},
		{"one comes twice", 8, false, message(1, 8), "has the number"},
		{"too short", 100, false, message(2, 99), "has 99 bytes, want 100"},
		{"too long", 8, false, message(2, 9), "has 9 bytes, want 8"},
		{"empty", 8, false, nil, "has 0 bytes"},
		{"last byte", 100, false, spoil(100, 99), "wrong contents"},
		{"a byte between", 100, true, spoil(100, 50), "wrong contents"},
		{"a byte between, at a glance", 100, false, spoil(100, 50), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newInbox(layer.Spec{Size: c.size, Seed: 7, Thorough: c.thorough})
			for _, m := range [][]byte{message(0, c.size), message(1, c.size), c.third, message(3, c.size)} {
				assert.False(t, in.HandleAM(m, nil), "nothing is kept")
			}
			assert.Equal(t, uint64(4), in.count, "counting goes on")
			if c.want == "" {
				assert.NoError(t, in.err)
				return
			}
			assert.ErrorIs(t, in.err, layer.ErrData)
			assert.ErrorContains(t, in.err, "message 2")
			assert.ErrorContains(t, in.err, c.want)
		})
	}
}

func TestWord_TakesWordsOnly(t *testing.T) {
	w := &word{}
	w.HandleAM(message(9, 8), nil)
	assert.Equal(t, uint64(9), w.value)
	w.HandleAM(message(9, 7), nil)
	assert.ErrorIs(t, w.err, layer.ErrData)
	assert.Equal(t, uint64(1), w.count)
}
