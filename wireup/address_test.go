package wireup

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct"
)

func TestAddress_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAddress(t)
		b, err := a.Pack()
		require.NoError(t, err)
		got, err := UnpackAddress(b)
		require.NoError(t, err)
		assert.Equal(t, a, got)
	})
}

func drawAddress(t *rapid.T) *Address {
	bytesOf := func(label string) []byte {
		b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, label)
		if len(b) == 0 {
			return nil
		}
		return b
	}
	a := &Address{UUID: rapid.Uint64Min(1).Draw(t, "uuid")}
	for range rapid.IntRange(1, 3).Draw(t, "mds") {
		a.MDs = append(a.MDs, MD{Component: rapid.StringMatching(`[a-z]{1,16}`).Draw(t, "component")})
	}
	for range rapid.IntRange(0, 6).Draw(t, "resources") {
		a.Resources = append(a.Resources, Resource{
			Transport: rapid.SampledFrom([]string{"rc", "ud", "sm", "tcp"}).Draw(t, "transport"),
			Device:    rapid.StringMatching(`[a-z0-9:]{0,32}`).Draw(t, "device"),
			MD:        uint8(rapid.IntRange(0, len(a.MDs)-1).Draw(t, "md")),
			AuxOnly:   rapid.Bool().Draw(t, "aux only"),
			Caps:      uct.Caps(rapid.Uint64().Draw(t, "caps")),
			Atomic:    uct.AtomicAttr{Fetch64: uct.AtomicOps(rapid.Byte().Draw(t, "ops")), Domain: uct.AtomicDomain(rapid.Byte().Draw(t, "domain"))},
			Latency:   rapid.Uint32().Draw(t, "latency"),
			Overhead:  rapid.Uint32().Draw(t, "overhead"),
			Bandwidth: rapid.Uint64Min(1).Draw(t, "bandwidth"),
			Priority:  rapid.Int16().Draw(t, "priority"),
			AMBcopy:   rapid.Uint32().Draw(t, "bcopy"),

			DeviceAddr: bytesOf("device address"),
			IfaceAddr:  bytesOf("iface address"),
		})
	}
	return a
}

func TestUnpackAddress_Refuses(t *testing.T) {
	good, err := address(t, 7, "rc", "ud").Pack()
	require.NoError(t, err)
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for _, tc := range []struct {
		name string
		in   []byte
	}{
		{"nothing", nil},
		{"a short header", good[:addrHeader-1]},
		{"another magic", edit(func(b []byte) []byte { b[0]++; return b })},
		{"another version", edit(func(b []byte) []byte { b[4]++; return b })},
		{"uuid 0", edit(func(b []byte) []byte { clear(b[8:16]); return b })},
		{"a part too few", edit(func(b []byte) []byte { b[6]--; return b })},
		{"a part too many", edit(func(b []byte) []byte { b[6]++; return b })},
		{"a cut part", good[:len(good)-1]},
		{"a long part length", edit(func(b []byte) []byte { b[addrHeader+1] = 0xff; return b })},
		{"a md that is not there", edit(func(b []byte) []byte { b[addrHeader+partHeader+3+partHeader] = 9; return b })},
		{"an unprintable name", edit(func(b []byte) []byte { b[addrHeader+partHeader+1] = 7; return b })},
		{"too long", append(bytes.Clone(good), make([]byte, MaxAddrLen)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := UnpackAddress(tc.in)
			assert.ErrorIs(t, err, uct.ErrInvalidAddr)
		})
	}
}

func TestUnpackAddress_SkipsUnknownParts(t *testing.T) {
	want := address(t, 7, "rc", "ud")
	b, err := want.Pack()
	require.NoError(t, err)
	b = appendPart(b, 200, []byte("of a later version"))
	binary.LittleEndian.PutUint16(b[6:], binary.LittleEndian.Uint16(b[6:])+1)
	got, err := UnpackAddress(b)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestUnpackAddress_SkipsFieldsAfterTheKnownOnes(t *testing.T) {
	want := address(t, 7, "rc")
	b := binary.LittleEndian.AppendUint32(nil, addrMagic)
	b = append(b, addrVersion, 0, 2, 0)
	b = binary.LittleEndian.AppendUint64(b, want.UUID)
	b = appendPart(b, partMD, append(appendName(nil, "ib"), "more"...))
	b = appendPart(b, partResource, append(want.Resources[0].pack(nil), "more"...))
	got, err := UnpackAddress(b)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestAddress_PackRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(a *Address)
		want error
	}{
		{"no uuid", func(a *Address) { a.UUID = 0 }, uct.ErrInvalidParam},
		{"no component name", func(a *Address) { a.MDs[0].Component = "" }, uct.ErrInvalidParam},
		{"a long component name", func(a *Address) { a.MDs[0].Component = strings.Repeat("x", 17) }, uct.ErrInvalidParam},
		{"no transport name", func(a *Address) { a.Resources[0].Transport = "" }, uct.ErrInvalidParam},
		{"a long transport name", func(a *Address) { a.Resources[0].Transport = "elevenchars" }, uct.ErrInvalidParam},
		{"a wrong md", func(a *Address) { a.Resources[0].MD = 1 }, uct.ErrInvalidParam},
		{"a long iface address", func(a *Address) { a.Resources[0].IfaceAddr = make([]byte, 256) }, uct.ErrInvalidParam},
		{"too many resources", func(a *Address) { a.Resources = make([]Resource, MaxResources+1) }, uct.ErrInvalidParam},
		{"too long", func(a *Address) {
			a.Resources[0].IfaceAddr = make([]byte, 255)
			for len(a.Resources) < MaxResources {
				a.Resources = append(a.Resources, a.Resources[0])
			}
		}, uct.ErrTooLong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := address(t, 7, "rc")
			tc.edit(a)
			_, err := a.Pack()
			assert.ErrorIs(t, err, tc.want)
		})
	}
}

func TestNewResource_Clamps(t *testing.T) {
	attr := &uct.IfaceAttr{
		Resource: uct.Resource{Transport: "rc", Device: "d:1"},
		Perf: uct.Perf{
			Latency: time.Hour, Overhead: -time.Second,
			Bandwidth: 10e9, SharedBandwidth: 4e9,
		},
		Priority: 1 << 20,
	}
	r := NewResource(attr, 3)
	assert.Equal(t, uint32(1<<32-1), r.Latency)
	assert.Equal(t, uint32(0), r.Overhead)
	assert.Equal(t, uint64(4e9), r.Bandwidth)
	assert.Equal(t, int16(1<<15-1), r.Priority)
	assert.Equal(t, uint8(3), r.MD)

	attr.Perf.Bandwidth, attr.Perf.SharedBandwidth = 0, 0
	assert.Equal(t, uint64(1), NewResource(attr, 0).Bandwidth, "an unknown bandwidth scores worst")
}

func FuzzUnpackAddress(f *testing.F) {
	for _, names := range [][]string{{"rc"}, {"rc", "ud"}, {"sm", "rc@x", "ud@y"}} {
		b, err := address(f, 7, names...).Pack()
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := UnpackAddress(b)
		if err != nil {
			assert.ErrorIs(t, err, uct.ErrInvalidAddr)
			return
		}
		packed, err := a.Pack()
		require.NoError(t, err)
		again, err := UnpackAddress(packed)
		require.NoError(t, err)
		assert.Equal(t, a, again)
	})
}
