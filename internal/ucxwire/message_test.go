package ucxwire

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// decoders are all decoders of messages, each with its encoder: what decoding returned is encoded again.
// nil: the bytes were refused.
var decoders = []struct {
	name   string
	least  int // bytes of the shortest message
	recode func(b []byte) []byte
}{
	{"eager", EagerLen, func(b []byte) []byte {
		m, ok := DecodeEager(b)
		return only(ok, append(AppendEager(nil, m), m.Data...))
	}},
	{"eager first", EagerFirstLen, func(b []byte) []byte {
		m, ok := DecodeEagerFirst(b)
		return only(ok, append(AppendEagerFirst(nil, m), m.Data...))
	}},
	{"fragment", FragmentLen, func(b []byte) []byte {
		m, ok := DecodeFragment(b)
		return only(ok, append(AppendFragment(nil, m), m.Data...))
	}},
	{"sync", SyncLen, func(b []byte) []byte {
		m, ok := DecodeSync(b)
		return only(ok, append(AppendSync(nil, m), m.Data...))
	}},
	{"sync first", SyncFirstLen, func(b []byte) []byte {
		m, ok := DecodeSyncFirst(b)
		return only(ok, append(AppendSyncFirst(nil, m), m.Data...))
	}},
	{"reply", ReplyLen, func(b []byte) []byte {
		m, ok := DecodeReply(b)
		return only(ok, AppendReply(nil, m))
	}},
	{"rts", RTSLen, func(b []byte) []byte {
		m, ok := DecodeRTS(b)
		return only(ok, AppendRTS(nil, &m))
	}},
	{"rtr", RTRLen, func(b []byte) []byte {
		m, ok := DecodeRTR(b)
		return only(ok, AppendRTR(nil, &m))
	}},
	{"stream", StreamLen, func(b []byte) []byte {
		m, ok := DecodeStream(b)
		return only(ok, append(AppendStream(nil, m), m.Data...))
	}},
	{"put", PutLen, func(b []byte) []byte {
		m, ok := DecodePut(b)
		return only(ok, append(AppendPut(nil, m), m.Data...))
	}},
	{"get request", GetRequestLen, func(b []byte) []byte {
		m, ok := DecodeGetRequest(b)
		return only(ok, AppendGetRequest(nil, &m))
	}},
	{"atomic", AtomicLen, func(b []byte) []byte {
		m, ok := DecodeAtomic(b)
		return only(ok, AppendAtomic(nil, &m))
	}},
	{"atomic reply", AtomicReplyLen, func(b []byte) []byte {
		m, ok := DecodeAtomicReply(b)
		return only(ok, AppendAtomicReply(nil, m))
	}},
	{"completion", 8, func(b []byte) []byte {
		ep, ok := DecodeCompletion(b)
		return only(ok, AppendCompletion(nil, ep))
	}},
	{"am", AMLen, func(b []byte) []byte {
		m, ok := DecodeAM(b)
		return only(ok, appendAM(nil, m))
	}},
	{"am reply", AMLen + AMReplyTail, func(b []byte) []byte {
		m, ok := DecodeAMReply(b)
		return only(ok, AppendAMReplyTail(appendAM(nil, m), m.EP))
	}},
	{"am first", AMLen + AMFirstTail, func(b []byte) []byte {
		m, ok := DecodeAMFirst(b)
		return only(ok, AppendAMFirstTail(appendAM(nil, m), m.MsgID, m.EP, m.Total))
	}},
	{"am middle", AMMiddleLen + AMMiddleTail, func(b []byte) []byte {
		m, ok := DecodeAMMiddle(b)
		return only(ok, AppendAMMiddleTail(append(AppendAMMiddleHead(nil, m.Offset), m.Data...), m.MsgID, m.EP))
	}},
}

func only(ok bool, b []byte) []byte {
	if !ok {
		return nil
	}
	return b
}

func TestDecoders_RefuseWhatIsTooShort(t *testing.T) {
	for _, d := range decoders {
		for n := range d.least {
			assert.Nil(t, d.recode(make([]byte, n)), "%s of %d bytes", d.name, n)
		}
	}
}

// TestDecoders_Recode decodes random bytes: what is accepted is encoded to the same bytes.
func TestDecoders_Recode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(decoders).Draw(t, "decoder")
		b := rapid.SliceOfN(rapid.Byte(), d.least, d.least+64).Draw(t, "bytes")
		if got := d.recode(b); got != nil {
			require.Equal(t, b[:min(len(b), len(got))], got, d.name)
		}
	})
}

func TestAtomic(t *testing.T) {
	for _, m := range []Atomic{
		{Addr: 1, EP: 2, Req: 3, Size: 4, Op: 0, Value: 5},
		{Addr: 1, EP: 2, Size: 8, Op: 4, Value: 1 << 63},
		{Addr: 1, EP: 2, Req: 3, Size: 8, Op: OpCSwap, Value: 6, Compare: 7},
		{Addr: 1, EP: 2, Req: 3, Size: 4, Op: OpCSwap, Value: 6, Compare: 7},
	} {
		got, ok := DecodeAtomic(AppendAtomic(nil, &m))
		require.True(t, ok)
		assert.Equal(t, m, got)
	}
	for _, m := range []Atomic{{Size: 2}, {Size: 8, Op: OpCSwap + 1}, {Size: 0}} {
		_, ok := DecodeAtomic(append(AppendAtomic(nil, &m), make([]byte, 8)...))
		assert.False(t, ok, m)
	}
}

func TestDecodeAM_HeaderLongerThanMessage(t *testing.T) {
	_, ok := DecodeAM(append(AppendAMHead(nil, 1, 0, 5), "four"...))
	assert.False(t, ok)
	_, ok = DecodeRTS(AppendRTS(nil, &RTS{Header: 1<<63 | 5<<32, Opcode: RTSOpcodeAM}))
	assert.False(t, ok)
}

// FuzzDecoders gives any bytes to one decoder. Nothing panics, views lie inside of the bytes, and what is
// accepted can be encoded and decoded again.
func FuzzDecoders(f *testing.F) {
	for _, c := range capturesOf(f) {
		for d := range len(decoders) + 4 {
			f.Add(uint8(d), c.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, decoder uint8, b []byte) {
		n := int(decoder) % (len(decoders) + 4)
		if n < len(decoders) {
			if got := decoders[n].recode(b); got != nil && len(got) > len(b) {
				t.Fatalf("%s: %d bytes of %d", decoders[n].name, len(got), len(b))
			}
			return
		}
		switch n - len(decoders) {
		case 0:
			fuzzAddress(t, b)
		case 1:
			if m, err := DecodeWireup(b); err == nil && m.Type > lastWireup {
				t.Fatal(m.Type)
			}
		case 2:
			_, _ = DecodePrivate(b)
		case 3:
			if k, err := DecodeKey(b); err == nil && len(k.Parts) > 64 {
				t.Fatal(k)
			}
		}
	})
}

func fuzzAddress(t *testing.T, b []byte) {
	for _, l := range []Layout{{}, {Resource: true}} {
		a, n, err := DecodeAddress(b, l)
		if err != nil {
			continue
		}
		if n > len(b) || len(a.Devices) > maxDevices+1 {
			t.Fatal(n, len(a.Devices))
		}
		if a.Version != 1 {
			continue
		}
		again, _, err := DecodeAddress(AppendAddress(nil, &a, l), l)
		if err != nil || len(again.Devices) != len(a.Devices) {
			t.Fatal(a, again, err)
		}
	}
}
