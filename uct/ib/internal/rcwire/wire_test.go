package rcwire

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func TestImm_Golden(t *testing.T) {
	for _, tc := range []struct {
		name    string
		imm     Imm
		want    uint32
		control bool
		id      uint8
		credits uint32
	}{
		{"am", AM(31, 0), 0x0000001f, false, 31, 0},
		{"am with credits", AM(3, 0x1234), 0x12340003, false, 3, 0x1234},
		{"credits", Credits(MaxCredits), 0xffff0020, true, 0, MaxCredits},
		{"disconnect", Disconnect(), 0x00000021, true, 1, 0},
		{"extension", Extension(), 0x00000022, true, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, uint32(tc.imm))
			assert.True(t, tc.imm.Valid())
			assert.Equal(t, tc.control, tc.imm.IsControl())
			assert.Equal(t, tc.name == "disconnect", tc.imm.IsDisconnect())
			assert.Equal(t, tc.name == "extension", tc.imm.IsExtension())
			assert.Equal(t, tc.id, tc.imm.ID())
			assert.Equal(t, tc.credits, tc.imm.Credits())
		})
	}
}

func TestImm_ValidRejectsReservedBits(t *testing.T) {
	for bit := 6; bit < 16; bit++ {
		assert.False(t, Imm(1<<bit).Valid(), "reserved bit %d", bit)
	}
	assert.False(t, (Credits(1) | 2).Valid(), "an unknown control message")
	assert.False(t, (Credits(0) | 3).Valid(), "an unknown control message")
}

func addr() EPAddr {
	return EPAddr{MTU: verbs.MTU4096, MaxReads: 16, QPN: 0xabcdef, PSN: 0x123456, SegLen: 8192, Credits: 128}
}

func TestEPAddr_Golden(t *testing.T) {
	b := addr().Append(nil)
	assert.Len(t, b, EPAddrLen)
	assert.Equal(t, "02051000"+"00abcdef"+"00123456"+"00002000"+"00800000", hex.EncodeToString(b))
	got, err := ParseEPAddr(b)
	require.NoError(t, err)
	assert.Equal(t, addr(), got)
}

func TestParseEPAddr_RejectsInvalid(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(b []byte) []byte
	}{
		{"empty", func([]byte) []byte { return nil }},
		{"short", func(b []byte) []byte { return b[:EPAddrLen-1] }},
		{"long", func(b []byte) []byte { return append(b, 0) }},
		{"version", func(b []byte) []byte { b[0]++; return b }},
		{"MTU 0", func(b []byte) []byte { b[1] = 0; return b }},
		{"MTU 6", func(b []byte) []byte { b[1] = 6; return b }},
		{"reserved", func(b []byte) []byte { b[3] = 1; return b }},
		{"QPN over 24 bits", func(b []byte) []byte { b[4] = 1; return b }},
		{"QPN 0", func(b []byte) []byte { clear(b[4:8]); return b }},
		{"PSN over 24 bits", func(b []byte) []byte { b[8] = 1; return b }},
		{"no segment", func(b []byte) []byte { clear(b[12:16]); return b }},
		{"no credits", func(b []byte) []byte { clear(b[16:18]); return b }},
		{"reserved tail", func(b []byte) []byte { b[19] = 1; return b }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseEPAddr(tc.edit(addr().Append(nil)))
			assert.ErrorIs(t, err, uct.ErrInvalidAddr)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(addr().Append(nil), uint32(AM(1, 2)))
	f.Add([]byte{}, uint32(Credits(9)))
	f.Add([]byte{}, uint32(Disconnect()))
	f.Add([]byte{}, uint32(Extension()))
	f.Add([]byte{}, uint32(Disconnect())|9<<16) // with credits, which it has not
	f.Fuzz(func(t *testing.T, b []byte, v uint32) {
		if a, err := ParseEPAddr(b); err == nil {
			assert.Equal(t, b, a.Append(nil))
		}
		imm := Imm(v)
		if !imm.Valid() {
			return
		}
		switch {
		case imm.IsDisconnect():
			assert.Equal(t, imm, Disconnect())
		case imm.IsExtension():
			assert.Equal(t, imm, Extension())
		case imm.IsControl():
			assert.Equal(t, imm, Credits(imm.Credits()))
		default:
			assert.Equal(t, imm, AM(imm.ID(), imm.Credits()))
		}
	})
}
