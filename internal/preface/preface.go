// Package preface has the first bytes of a data connection to the listening socket of a
// Listener. They contain the id of the iface of a transport that adopts the connection. docs/wire.md, "Preface".
package preface

import (
	"encoding/binary"
	"errors"
)

// Len is the length of a preface in bytes. MagicLen is the number of bytes that IsMagic checks.
const (
	Len      = 16
	MagicLen = 4
)

// The layout; everything is little-endian.
const (
	magic   = 0x43445847 // "GXDC"
	version = 1

	offVersion = 4 // u16
	offUnused  = 6 // u16: 0
	offID      = 8 // u64: not 0
)

// ErrMalformed: the bytes are not a preface of this version.
var ErrMalformed = errors.New("it began with a malformed preface, or with one of another version")

// IsMagic reports whether a connection that begins with these bytes begins with a preface.
func IsMagic(first [MagicLen]byte) bool { return binary.LittleEndian.Uint32(first[:]) == magic }

// Append appends the preface of a connection to the iface id, which is not 0.
func Append(b []byte, id uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint16(b, 0)
	return binary.LittleEndian.AppendUint64(b, id)
}

// Parse returns the id in a preface, which may come from an untrusted peer. Error: ErrMalformed.
func Parse(b [Len]byte) (id uint64, err error) {
	id = binary.LittleEndian.Uint64(b[offID:])
	if !IsMagic([MagicLen]byte(b[:])) || binary.LittleEndian.Uint16(b[offVersion:]) != version ||
		binary.LittleEndian.Uint16(b[offUnused:]) != 0 || id == 0 {
		return 0, ErrMalformed
	}
	return id, nil
}
