package layer

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gucx/gucx/perftest/internal/measure/pattern"
)

// message returns message n with correct contents.
func message(n uint64, size int) []byte {
	b := make([]byte, max(size, NumberLen))
	pattern.Fill(b[:size], 7)
	var number [NumberLen]byte
	binary.LittleEndian.PutUint64(number[:], n)
	copy(b[:min(size, NumberLen)], number[:])
	return b[:size]
}

func TestInbox_DetectsFaults(t *testing.T) {
	corrupt := func(size, at int) []byte {
		b := message(2, size)
		b[at]++
		return b
	}
	for _, c := range []struct {
		name     string
		size     int
		thorough bool
		written  bool
		third    []byte
		want     string
	}{
		{"correct", 100, true, false, message(2, 100), ""},
		{"correct, short", 3, false, false, message(2, 3), ""},
		{"correct, number only", 8, true, false, message(2, 8), ""},
		{"one is missing", 100, false, false, message(3, 100), "has the number"},
		{"one is missing, short", 3, false, false, message(3, 3), "has the number"},
		{"one arrives twice", 8, false, false, message(1, 8), "has the number"},
		{"too short", 100, false, false, message(2, 99), "has 99 bytes, want 100"},
		{"too long", 8, false, false, message(2, 9), "has 9 bytes, want 8"},
		{"empty", 8, false, false, nil, "has 0 bytes"},
		{"last byte", 100, false, false, corrupt(100, 99), "wrong contents"},
		{"a middle byte", 100, true, false, corrupt(100, 50), "wrong contents"},
		{"a middle byte, written", 100, false, true, corrupt(100, 50), "wrong contents"},
		{"the byte after the number", 9, false, false, corrupt(9, 8), "wrong contents"},
		{"one is missing, thorough", 100, true, false, message(3, 100), "has the number"},
		{"too long, thorough", 8, true, false, message(2, 9), "has 9 bytes, want 8"},
		{"a middle byte, not thorough", 100, false, false, corrupt(100, 50), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := NewInbox(Spec{Size: c.size, Seed: 7, Thorough: c.thorough, Written: c.written})
			for _, m := range [][]byte{message(0, c.size), message(1, c.size), c.third, message(3, c.size)} {
				in.Receive(m)
			}
			assert.Equal(t, uint64(4), in.Count, "messages are still counted")
			if c.want == "" {
				assert.NoError(t, in.Err)
				return
			}
			assert.ErrorIs(t, in.Err, ErrData)
			assert.ErrorContains(t, in.Err, "message 2")
			assert.ErrorContains(t, in.Err, c.want)
		})
	}
}

// TestInbox_Repeats: messages may repeat or skip numbers, but no message may have a smaller number than the one before.
func TestInbox_Repeats(t *testing.T) {
	for _, size := range []int{3, 8, 100} {
		in := NewInbox(Spec{Size: size, Seed: 7})
		in.Repeats = true
		for _, n := range []uint64{0, 0, 0, 3, 3, 5} {
			in.Receive(message(n, size))
			assert.NoError(t, in.Err)
		}
		in.Receive(message(3, size))
		assert.ErrorIs(t, in.Err, ErrData)
	}
}

// TestInbox_RepeatsUnlessThorough: only a thorough inbox checks all bytes of a message with a repeated
// number.
func TestInbox_RepeatsUnlessThorough(t *testing.T) {
	for _, thorough := range []bool{false, true} {
		in := NewInbox(Spec{Size: 100, Seed: 7, Thorough: thorough})
		in.Repeats = true
		in.Receive(message(0, 100))
		again := message(0, 100)
		again[50]++
		in.Receive(again)
		if thorough {
			assert.ErrorContains(t, in.Err, "wrong contents")
		} else {
			assert.NoError(t, in.Err)
		}
	}
}

func TestPutNumber(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9} {
		b := make([]byte, n)
		assert.Equal(t, min(n, NumberLen), PutNumber(b, 0x0807060504030201))
		assert.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8, 0}[:n], b)
	}
}
