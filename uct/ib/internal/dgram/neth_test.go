package dgram

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/ibport"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func TestHeader_Golden(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    Header
		want string
	}{
		{"am", Header{Dest: 0x123456, AM: true, ID: 31, PSN: 0xabcd, Ack: 0x0102}, "1234569fabcd0102"},
		{"am, ack request", Header{Dest: 1, AM: true, AckReq: true, PSN: 0xffff, Ack: 0xfffe}, "000001c0fffffffe"},
		{"probe", Header{Dest: 1, AM: true, AckReq: true, ID: ProbeID, PSN: 1, Ack: 2}, "000001e000010002"},
		{"creq", Header{ID: CtlCreq, Ack: 0xffff}, "000000030000ffff"},
		{"crep", Header{Dest: MaxID, ID: CtlCrep}, "ffffff0400000000"},
		{"ack", Header{Dest: 2, ID: CtlAck, AckReq: true, PSN: 7, Ack: 9}, "0000024100070009"},
		{"nak", Header{Dest: 2, ID: CtlNak}, "0000020200000000"},
		{"fin", Header{Dest: 2, ID: CtlFin}, "0000020500000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b [HeaderLen]byte
			tc.h.Put(b[:])
			assert.Equal(t, tc.want, hex.EncodeToString(b[:]))
			got, ok := ParseHeader(b[:])
			assert.True(t, ok)
			assert.Equal(t, tc.h, got)
		})
	}
}

func TestParseHeader_RejectsInvalid(t *testing.T) {
	for name, in := range map[string]string{
		"empty":               "",
		"short":               "00000181000000",
		"probe with an id":    "000001a100000000",
		"control and probe":   "0000012100000000",
		"control of kind 0":   "0000010000000000",
		"control beyond ours": "0000010600000000",
	} {
		b, err := hex.DecodeString(in)
		require.NoError(t, err)
		_, ok := ParseHeader(b)
		assert.False(t, ok, name)
	}
}

func device() ibport.DeviceAddr {
	return ibport.DeviceAddr{Ethernet: true, GID: verbs.GID{0xfe, 0x80, 15: 7}}
}

func TestCreq_Golden(t *testing.T) {
	c := Creq{
		Iface:  IfaceAddr{MTU: verbs.MTU4096, QPN: 0x012345},
		Device: device(), ID: 0x040001, Number: 3,
	}
	want := "35012345" + "01020000" + "fe800000000000000000000000000007" + "00040001" + "00000003"
	b := c.Append(nil)
	assert.Equal(t, want, hex.EncodeToString(b))
	got, err := ParseCreq(b)
	require.NoError(t, err)
	assert.Equal(t, c, got)
}

func TestParseCreq_RejectsInvalid(t *testing.T) {
	good := Creq{Iface: IfaceAddr{MTU: verbs.MTU1024, QPN: 5}, Device: device(), ID: 1}.Append(nil)
	for _, tc := range []struct {
		name string
		at   int
		to   byte
	}{
		{"iface version", 0, 0x23}, {"MTU 0", 0, 0x30}, {"MTU 6", 0, 0x36},
		{"QPN 0", 3, 0}, {"device version", 4, 9},
		{"connection id over 24 bits", 24, 1}, {"connection id 0", 27, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := append([]byte(nil), good...)
			b[tc.at] = tc.to
			_, err := ParseCreq(b)
			assert.ErrorIs(t, err, uct.ErrInvalidAddr)
		})
	}
	for _, n := range []int{0, CreqLen - 1} {
		_, err := ParseCreq(good[:n])
		assert.ErrorIs(t, err, uct.ErrInvalidAddr)
	}
	_, err := ParseCreq(append(good, 0))
	assert.ErrorIs(t, err, uct.ErrInvalidAddr)
	_, err = ParseIfaceAddr(good[:3])
	assert.ErrorIs(t, err, uct.ErrInvalidAddr)
}

func TestCrep(t *testing.T) {
	b := AppendCrep(nil, 0x00abcdef)
	assert.Equal(t, "00abcdef", hex.EncodeToString(b))
	id, ok := ParseCrep(b)
	assert.True(t, ok)
	assert.EqualValues(t, 0xabcdef, id)
	for _, bad := range [][]byte{nil, {0, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 1, 0}} {
		_, ok := ParseCrep(bad)
		assert.False(t, ok, "%x", bad)
	}
}

func TestHeader_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), HeaderLen, HeaderLen).Draw(t, "bytes")
		h, ok := ParseHeader(b)
		if !ok {
			return
		}
		var again [HeaderLen]byte
		h.Put(again[:])
		assert.Equal(t, b, again[:])
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("12345678"))
	f.Add(Creq{Iface: IfaceAddr{MTU: verbs.MTU1024, QPN: 5}, Device: device(), ID: 1}.Append(nil))
	f.Add(AppendCrep(nil, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, ok := ParseHeader(b); ok {
			var again [HeaderLen]byte
			h.Put(again[:])
			assert.Equal(t, b[:HeaderLen], again[:])
		}
		if c, err := ParseCreq(b); err == nil {
			assert.Equal(t, b, c.Append(nil))
		}
		if id, ok := ParseCrep(b); ok {
			assert.Equal(t, b, AppendCrep(nil, id))
		}
	})
}
