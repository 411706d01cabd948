package oob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	magic = 0x67757078 // "gupx"
	// Version of the protocol. Both sides must have the same.
	Version = 4
	// MaxPayload bounds a message in bytes. Addresses are the longest content
	// and take a few hundred bytes.
	MaxPayload = 64 << 10

	headerLen   = 12
	headMagic   = 0 // u32
	headVersion = 4 // u8
	headKind    = 5 // u8
	headZero    = 6 // u16
	headLen     = 8 // u32
)

type kind uint8

const (
	kindRequest kind = 1
	kindReply   kind = 2
)

// Errors of a frame. Match with errors.Is.
var (
	// ErrMagic is the error if the other side is not perftest.
	ErrMagic = errors.New("not a perftest message")
	// ErrVersion is the error if the other side is another version of perftest.
	ErrVersion = errors.New("peer speaks another protocol version; run the same perftest on both sides")
	// ErrFrame is the error of a malformed header field or payload.
	ErrFrame = errors.New("malformed message")
	// ErrTooLong is the error of a message longer than MaxPayload.
	ErrTooLong = errors.New("message too long")
)

// appendFrame appends header and payload to b.
func appendFrame(b []byte, k kind, payload []byte) ([]byte, error) {
	if len(payload) > MaxPayload {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, len(payload), MaxPayload)
	}
	b = binary.BigEndian.AppendUint32(b, magic)
	b = append(b, Version, byte(k), 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...), nil
}

// header is the first headerLen bytes of a frame.
type header []byte

// check validates the header for a frame of kind want and returns the length of the payload.
func (h header) check(want kind) (payloadLen int, err error) {
	if binary.BigEndian.Uint32(h[headMagic:]) != magic {
		return 0, ErrMagic
	}
	if v := h[headVersion]; v != Version {
		return 0, fmt.Errorf("%w: it has %d, this is %d", ErrVersion, v, Version)
	}
	if k := kind(h[headKind]); k != want {
		return 0, fmt.Errorf("%w: kind %d, want %d", ErrFrame, k, want)
	}
	if binary.BigEndian.Uint16(h[headZero:]) != 0 {
		return 0, fmt.Errorf("%w: reserved field is not zero", ErrFrame)
	}
	n := binary.BigEndian.Uint32(h[headLen:])
	if n > MaxPayload {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, n, MaxPayload)
	}
	return int(n), nil
}

// readFrame reads one frame of kind want. It calls began when the first byte has arrived, to start
// a deadline for the rest.
func readFrame(r io.Reader, want kind, began func() error) (payload []byte, err error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(r, h[:1]); err != nil {
		return nil, err
	}
	if err := began(); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(r, h[1:]); err != nil {
		return nil, cutShort(err)
	}
	n, err := header(h[:]).check(want)
	if err != nil {
		return nil, err
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, cutShort(err)
	}
	return payload, nil
}

// cutShort replaces EOF within a frame by ErrUnexpectedEOF.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
