package attach

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func sampleHello() *frame {
	return &frame{kind: kindHello, layout: 3, from: [16]byte{1}, to: [16]byte{2}, len0: 4096, link: 8192}
}

func TestFrame_Layout(t *testing.T) {
	f := &frame{kind: kindWelcome, shares: true, layout: 0x01020304, from: [16]byte{0xa0, 15: 0xa1}, to: [16]byte{0xb0, 15: 0xb1},
		len0: 0x1112131415161718, arenaLen: 0x2122232425262728}
	want := []byte{
		'g', 'u', 'c', 'x', 3, 0, 2, 0, 4, 3, 2, 1, 1, 0, 0, 0,
		0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa1,
		0xb0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb1,
		0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
	}
	assert.Equal(t, want, f.encode())
}

func TestFrame_RoundTrip(t *testing.T) {
	gid := func(t *rapid.T, label string) (g [16]byte) {
		copy(g[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
		g[3] |= 1 // not zero
		return g
	}
	rapid.Check(t, func(t *rapid.T) {
		f := frame{kind: kind(rapid.IntRange(1, 3).Draw(t, "kind")), from: gid(t, "from"), to: gid(t, "to")}
		if f.kind == kindRefuse {
			f.reason = Reason(rapid.Uint32Min(1).Draw(t, "reason"))
		} else {
			f.layout = rapid.Uint32().Draw(t, "layout")
			f.len0 = rapid.Uint64Min(1).Draw(t, "len0")
			last := rapid.Uint64Min(1).Draw(t, "arena or link")
			if f.kind == kindHello {
				f.link = linkID(last)
			} else {
				f.arenaLen = last
				f.shares = f.kind == kindWelcome && rapid.Bool().Draw(t, "shares")
			}
		}
		got, err := decodeFrame(f.encode())
		require.NoError(t, err)
		require.Equal(t, f, got)
	})
}

func TestDecodeFrame_Refuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(b []byte) []byte
		want error
	}{
		{"empty", func([]byte) []byte { return nil }, errMalformed},
		{"short", func(b []byte) []byte { return b[:frameLen-1] }, errMalformed},
		{"long", func(b []byte) []byte { return append(b, 0) }, errMalformed},
		{"magic", func(b []byte) []byte { b[0] ^= 1; return b }, errMalformed},
		{"version", func(b []byte) []byte { b[frameOffVer]++; return b }, errVersion},
		{"kind 0", func(b []byte) []byte { b[frameOffKind] = 0; return b }, errMalformed},
		{"kind 4", func(b []byte) []byte { b[frameOffKind] = 4; return b }, errMalformed},
		{"hello with reason", func(b []byte) []byte { b[frameOffWhy] = 1; return b }, errMalformed},
		{"welcome with unknown flags", func(b []byte) []byte { b[frameOffKind], b[frameOffWhy] = 2, 2; return b }, errMalformed},
		{"hello without length", func(b []byte) []byte { clear(b[frameOffLen0:frameOffLast]); return b }, errMalformed},
		{"hello without link", func(b []byte) []byte { clear(b[frameOffLast:]); return b }, errMalformed},
		{"hello from zero", func(b []byte) []byte { clear(b[frameOffFrom:frameOffTo]); return b }, errMalformed},
		{"hello to zero", func(b []byte) []byte { clear(b[frameOffTo:frameOffLen0]); return b }, errMalformed},
		{"refuse with lengths", func(b []byte) []byte { b[frameOffKind], b[frameOffWhy] = 3, 1; return b }, errMalformed},
		{"refuse without reason", func([]byte) []byte { return (&frame{kind: kindRefuse}).encode() }, errMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decodeFrame(tt.edit(sampleHello().encode()))
			assert.ErrorIs(t, err, tt.want)
		})
	}
}

func TestDecodeFrame_RefuseOfAnyVersion(t *testing.T) {
	b := (&frame{kind: kindRefuse, reason: ReasonVersion}).encode()
	b[frameOffVer] = 99
	f, err := decodeFrame(b)
	require.NoError(t, err)
	assert.Equal(t, ReasonVersion, f.reason)
}

func TestReason_String(t *testing.T) {
	seen := map[string]Reason{}
	for r := ReasonVersion; r <= ReasonOwner; r++ {
		assert.NotContains(t, seen, r.String())
		seen[r.String()] = r
	}
	assert.Equal(t, "reason 77", Reason(77).String())
}

// FuzzDecodeFrame: what is accepted is exactly what encode makes, but for the version
// of a refuse. The same for messages after the handshake.
func FuzzDecodeFrame(f *testing.F) {
	f.Add(sampleHello().encode())
	f.Add((&frame{kind: kindWelcome, from: [16]byte{1}, to: [16]byte{2}, len0: 1, arenaLen: 1}).encode())
	f.Add((&frame{kind: kindWelcome, shares: true, from: [16]byte{1}, to: [16]byte{2}, len0: 1, arenaLen: 1}).encode())
	f.Add((&frame{kind: kindRefuse, reason: ReasonLimit}).encode())
	f.Add([]byte("gucx"))
	f.Add(make([]byte, frameLen))
	for kind := msgMove; kind <= msgGone; kind++ {
		f.Add(linkMsg{kind, 7}.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeLinkMsg(b); err == nil {
			assert.Equal(t, b, m.encode())
		}
		got, err := decodeFrame(b)
		if err != nil {
			return
		}
		want := append([]byte(nil), b...)
		binary.LittleEndian.PutUint16(want[frameOffVer:], frameVersion)
		assert.Equal(t, want, got.encode())
	})
}

// TestParseRights: control data of other kinds, or with a part of a descriptor, are an error, and the descriptors
// of the rest are returned.
func TestParseRights(t *testing.T) {
	credentials := unix.UnixCredentials(&unix.Ucred{Pid: 1})
	torn := unix.UnixRights(3)
	binary.NativeEndian.PutUint64(torn, uint64(unix.CmsgLen(3)))
	for name, tt := range map[string]struct {
		oob  []byte
		want rights
		ok   bool
	}{
		"none":                  {nil, nil, true},
		"three":                 {unix.UnixRights(3, 4, 5), rights{3, 4, 5}, true},
		"twice":                 {slices.Concat(unix.UnixRights(3, 4), unix.UnixRights(5)), rights{3, 4, 5}, true},
		"credentials":           {credentials, nil, false},
		"descriptors after it":  {slices.Concat(credentials, unix.UnixRights(3, 4)), rights{3, 4}, false},
		"descriptors before it": {slices.Concat(unix.UnixRights(3, 4), credentials), rights{3, 4}, false},
		"a part":                {torn, nil, false},
		"after a part":          {slices.Concat(torn, unix.UnixRights(7)), rights{7}, false},
		"no header":             {make([]byte, unix.CmsgLen(0)), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseRights(tt.oob)
			assert.Equal(t, tt.want, got)
			if tt.ok {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, errMalformed)
			}
		})
	}
}

// FuzzParseRights: never a panic, and no descriptor that was not in the data.
func FuzzParseRights(f *testing.F) {
	f.Add([]byte{})
	f.Add(unix.UnixRights(3))
	f.Add(unix.UnixRights(3, 4, 5))
	f.Add(unix.UnixRights(3, 4, 5)[:20])
	f.Add(append(unix.UnixRights(3), unix.UnixCredentials(&unix.Ucred{Pid: 1})...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseRights(b)
		assert.LessOrEqual(t, len(got)*4, len(b))
		if err == nil && len(b) >= unix.CmsgLen(0) {
			assert.GreaterOrEqual(t, binary.NativeEndian.Uint64(b), uint64(unix.CmsgLen(0)), "length in an accepted header")
		}
	})
}
