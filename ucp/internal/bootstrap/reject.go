package bootstrap

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gucx/gucx/internal/cursor"
)

// Reason explains why a transport of the listener does not reach the dialer: the criterion that failed, from the
// view of the listener, and the setting that may change it.
type Reason struct {
	Transport, Device string // at most 255 bytes each
	Why               string // at most 512 bytes
}

// String returns the reason in one line.
func (r Reason) String() string { return strings.TrimSpace(r.Transport+" "+r.Device) + ": " + r.Why }

// rejection returns a REJECT. It truncates texts that are too long.
func rejection(why Code, private []byte, reasons ...Reason) []byte {
	reasons = reasons[:min(len(reasons), MaxReasons)]
	return appendMessage(nil, kindReject, why, func(b []byte) []byte {
		b = append(b, byte(len(reasons)))
		for _, r := range reasons {
			tl, dev, why := printable(r.Transport, math.MaxUint8), printable(r.Device, math.MaxUint8), printable(r.Why, maxWhy)
			b = append(b, byte(len(tl)), byte(len(dev)))
			b = binary.LittleEndian.AppendUint16(b, uint16(len(why)))
			b = append(append(append(b, tl...), dev...), why...)
		}
		return append(b, private...)
	})
}

// printable returns s truncated to a number of bytes, with ? instead of characters that are not printable.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	for n, r := range s {
		if n+utf8.RuneLen(r) > most {
			return s[:n]
		}
	}
	return s
}

// parseRejection checks and decodes a REJECT. If it has another version, only the code is decoded. The
// error is a *RejectedError, or ErrInvalidParam if the REJECT is malformed.
func parseRejection(h header, body []byte) error {
	e := &RejectedError{Code: h.code}
	if h.version != version {
		return e
	}
	c := cursor.Cursor{B: body}
	count := int(c.U8())
	for range min(count, MaxReasons) {
		tlLen, devLen, whyLen := int(c.U8()), int(c.U8()), int(c.U16())
		r := Reason{string(c.Take(tlLen)), string(c.Take(devLen)), string(c.Take(whyLen))}
		if c.Bad || r != (Reason{printable(r.Transport, math.MaxUint8), printable(r.Device, math.MaxUint8), printable(r.Why, maxWhy)}) {
			return malformed("REJECT with %d reasons in %d bytes", count, len(body))
		}
		e.Reasons = append(e.Reasons, r)
	}
	if c.Bad || count > MaxReasons || len(c.B) > MaxPrivate {
		return malformed("REJECT with %d reasons in %d bytes", count, len(body))
	}
	e.Private = c.B
	return e
}
