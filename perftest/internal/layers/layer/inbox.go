package layer

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gucx/gucx/perftest/internal/measure/pattern"
)

// NumberLen is the length in bytes of the number at the start of a message. A shorter message
// contains the low bytes of the number.
const NumberLen = 8

// PutNumber writes the number of a message to its first bytes and returns their count.
func PutNumber(message []byte, n uint64) int {
	if len(message) >= NumberLen {
		binary.LittleEndian.PutUint64(message, n)
		return NumberLen
	}
	for i := range message {
		message[i] = byte(n >> (8 * i))
	}
	return len(message)
}

// Inbox checks numbered messages. It checks length, number and last byte of each message; all bytes
// if Spec.Thorough or Spec.Written is set.
type Inbox struct {
	Count uint64
	Err   error // the first fault

	// Repeats: a message may have the number of the previous one, because the buffer was in use by
	// that one when it was sent.
	Repeats bool

	want   []byte // contents without the number
	number uint64 // number of the last message
	last   byte   // of want
	brief  bool   // messages have a whole number, and the bytes after it are not checked, except the last
}

// NewInbox returns an Inbox for the messages of s.
func NewInbox(s Spec) Inbox {
	in := Inbox{want: make([]byte, s.Size), brief: s.Size >= NumberLen && !s.Thorough && !s.Written}
	pattern.Fill(in.want, s.Seed)
	if s.Size > 0 {
		in.last = in.want[s.Size-1]
	}
	return in
}

// Fill writes to buf the contents of a message for an Inbox of the same Spec, without the number.
func (in *Inbox) Fill(buf []byte) { copy(buf, in.want) }

// Receive counts and checks a message.
func (in *Inbox) Receive(data []byte) {
	if !in.brief || !in.quick(data) {
		in.check(data)
	}
	in.Count++
}

// quick reports whether length, number and last byte are correct.
func (in *Inbox) quick(data []byte) bool {
	if len(data) != len(in.want) || len(data) > NumberLen && data[len(data)-1] != in.last {
		return false
	}
	n := binary.LittleEndian.Uint64(data)
	if n != in.Count && (!in.Repeats || n != in.number) {
		return false
	}
	in.number = n
	return true
}

// check checks the whole message and records the first fault.
//
//go:noinline
func (in *Inbox) check(data []byte) {
	n := min(NumberLen, len(in.want))
	switch {
	case in.Err != nil || len(data) == len(in.want) && in.hasNumber(data[:n]) && bytes.Equal(data[n:], in.want[n:]):
	case len(data) != len(in.want):
		in.Err = fmt.Errorf("%w: message %d has %d bytes, want %d", ErrData, in.Count, len(data), len(in.want))
	case !in.hasNumber(data[:n]):
		in.Err = fmt.Errorf("%w: message %d has the number %#x (%d bytes of it)", ErrData, in.Count, data[:n], n)
	default:
		in.Err = fmt.Errorf("%w: message %d arrived with wrong contents", ErrData, in.Count)
	}
}

// hasNumber reports whether the first bytes of the message are its number, or, with Repeats, that
// of the previous one.
func (in *Inbox) hasNumber(first []byte) bool {
	if is(first, in.Count) {
		in.number = in.Count
		return true
	}
	return in.Repeats && is(first, in.number)
}

// is reports whether the bytes are those of a number.
func is(b []byte, n uint64) bool {
	var number [NumberLen]byte
	PutNumber(number[:], n)
	return bytes.Equal(b, number[:len(b)])
}
