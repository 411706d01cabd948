package prm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

func newSendRing(t testing.TB, count, qpn uint32, typ verbs.QPType, limits verbs.QPCap) (SendRing, []byte) {
	v, mem := newSQ(t, count, qpn, typ)
	return NewSendRing(v, limits, false), mem
}

var testLimits = verbs.QPCap{MaxSendSGE: 5, MaxInline: 200}

// What libmlx5 44.0 wrote for these work requests.
func TestEncode_Golden(t *testing.T) {
	const a, b = 0x7f0000001000, 0x7f0000003000
	r, mem := newSendRing(t, 8, 0x100, verbs.QPTypeRC, testLimits)
	for i, c := range []struct {
		wr   verbs.SendWR
		want string
	}{
		{verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
			Inline: []byte{0, 7, 0xe, 0x15, 0x1c, 0x23, 0x2a, 0x31}, RemoteAddr: 0x1122334455667788, RKey: 0xabcdef01}, goldenWriteInline},
		{verbs.SendWR{Opcode: verbs.OpSendWithImm, Imm: 0x01020304, Flags: verbs.SendSolicited,
			SGList: []verbs.SGE{{Addr: a, Length: 100, LKey: 0x1000}, {Addr: a + 200, Length: 300, LKey: 0x1000}}}, goldenSendImm},
		{verbs.SendWR{Opcode: verbs.OpRDMARead, RemoteAddr: 0x1000, RKey: 0x22,
			SGList: []verbs.SGE{{Addr: a, Length: 100, LKey: 0x1000}}}, goldenRead},
		{verbs.SendWR{Opcode: verbs.OpAtomicCmpSwap, Flags: verbs.SendFence | verbs.SendSignaled, RemoteAddr: 0x2000, RKey: 0x33,
			CompareAdd: 0x1111, Swap: 0x2222, SGList: []verbs.SGE{{Addr: b, Length: 8, LKey: 0x1000}}}, goldenCAS},
	} {
		want := words(t, c.want)
		if n := len(c.wr.Inline); n > 0 {
			want = want[:36+n] // padding is not looked at
		}
		word := r.Encode(uint32(i), &c.wr, nil)
		assert.Equal(t, be.Uint64(want), word)
		assert.Equal(t, want, mem[i*BBLen:][:len(want)])
		// The general way writes the same.
		clear(mem[i*BBLen:][:BBLen])
		assert.Equal(t, word, r.encodeAny(uint32(i), &c.wr, nil))
		assert.Equal(t, want, mem[i*BBLen:][:len(want)])
	}
}

func TestEncode_GoldenUD(t *testing.T) {
	r, mem := newSendRing(t, 8, 0x101, verbs.QPTypeUD, testLimits)
	var av [AVLen]byte
	(&AV{DLID: 0xf10d, MAC: [6]byte{2, 0, 0, 0, 0, 1}, HopLimit: 64, SGIDIndex: 1, DGID: verbs.GID{0xfe, 0x80, 15: 0xaa}}).Put(&av)
	wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, RemoteQPN: 0x99, RemoteQKey: 0x11111111,
		Inline: []byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14")}
	require.NotZero(t, r.Encode(0, &wr, &av))
	assert.Equal(t, words(t, goldenUD)[:88], mem[:88])
	assert.Zero(t, r.Encode(0, &wr, nil))
	assert.ErrorContains(t, r.Refused(&wr, nil), "no address handle")
}

// TestAV_Put: every byte of the segment is written, also over another one, and reserved bytes
// are 0.
func TestAV_Put(t *testing.T) {
	for _, av := range []AV{{}, {QKey: 1, QPN: 2, RateSL: 3, Path: 4, DLID: 5, MAC: [6]byte{6}, TrafficClass: 7,
		HopLimit: 8, GRH: true, SGIDIndex: 9, FlowLabel: 10, DGID: verbs.GID{11}}} {
		var clean, used [AVLen]byte
		for i := range used {
			used[i] = 0xff
		}
		av.Put(&clean)
		av.Put(&used)
		assert.Equal(t, clean, used)
		assert.Zero(t, le.Uint32(used[16:]), "reserved")
	}
}

// A short send is what Encode writes for a send with immediate whose payload is inline.
func TestPutShortSend(t *testing.T) {
	r, mem := newSendRing(t, 8, 0x100, verbs.QPTypeRC, testLimits)
	for n := range MaxShortSendLen - 8 + 1 {
		payload := append(le.AppendUint64(nil, 0x1122334455667788), pattern(n)...)
		wr := verbs.SendWR{Opcode: verbs.OpSendWithImm, Imm: 0x01020304, Flags: verbs.SendSignaled | verbs.SendInline, Inline: payload}
		word := r.encodeAny(0, &wr, nil)
		require.Equal(t, word, r.Word(0, OpSendImm, ShortSendSegs(8+n)))
		used := int(WordDS(word)) * SegLen
		clear(mem[20+len(payload) : BBLen]) // padding
		want := append([]byte(nil), mem[:used]...)
		clear(mem[:BBLen])
		PutShortSend(r.BB(0), word, CtrlCQUpdate, 0x01020304, 0x1122334455667788, pattern(n))
		assert.Equal(t, want, mem[:used], "%d bytes", n)
		clear(mem[:BBLen])
		require.Equal(t, word, r.Encode(0, &wr, nil))
		assert.Equal(t, want, mem[:used], "%d bytes", n)
	}
}

// The data segment of an atomic says 8, whatever the SGE does.
func TestEncode_AtomicSays8(t *testing.T) {
	for _, n := range []uint32{1, 4, 8, 100, MaxSGELen} {
		r, mem := newSendRing(t, 8, 0x100, verbs.QPTypeRC, testLimits)
		require.NotZero(t, r.Encode(3, &verbs.SendWR{Opcode: verbs.OpAtomicCmpSwap, Flags: verbs.SendFence | verbs.SendSignaled, RemoteAddr: 0x2000,
			RKey: 0x33, CompareAdd: 0x1111, Swap: 0x2222, SGList: []verbs.SGE{{Addr: 0x7f0000003000, Length: n, LKey: 0x1000}}}, nil))
		assert.Equal(t, words(t, goldenCAS), mem[3*BBLen:4*BBLen], "an SGE of %d bytes", n)
	}
}

// TestEncode_LastIndexes: a producer index counts on, beyond what units of 16 bytes can.
func TestEncode_LastIndexes(t *testing.T) {
	r, _ := newSendRing(t, 16, 0x100, verbs.QPTypeRC, testLimits)
	wr := verbs.SendWR{Opcode: verbs.OpAtomicCmpSwap, SGList: []verbs.SGE{{Addr: 1, Length: 8, LKey: 2}}}
	for _, pi := range []uint32{1<<16 - 1, 1<<16 + 3, 1<<30 - 1, 1 << 30, 1<<31 - 1, 1<<32 - 1} {
		word := r.Encode(pi, &wr, nil)
		require.EqualValues(t, 4, WordDS(word), "pi %#x", pi)
		var w WQE
		_, syn := DecodeWQE(&r.SQView, uint16(pi), uint16(pi+1), &w)
		require.Equal(t, SyndromeOK, syn, "pi %#x", pi)
	}
}

func TestEncode_Refused(t *testing.T) {
	rc, _ := newSendRing(t, 8, 1, verbs.QPTypeRC, testLimits)
	ud, _ := newSendRing(t, 8, 1, verbs.QPTypeUD, testLimits)
	var av [AVLen]byte
	for name, c := range map[string]struct {
		ring *SendRing
		wr   verbs.SendWR
		want error
		text string
	}{
		"unknown opcode":     {&rc, verbs.SendWR{Opcode: 200}, ucs.ErrInvalidParam, "opcode 200"},
		"RDMA on UD":         {&ud, verbs.SendWR{Opcode: verbs.OpRDMAWrite}, ucs.ErrInvalidParam, "opcode 0"},
		"inline too long":    {&rc, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendInline, Inline: pattern(201)}, ucs.ErrTooLong, "inline 201 bytes, limit 200"},
		"inline read":        {&rc, verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendInline, Inline: pattern(1)}, ucs.ErrInvalidParam, "cannot be inline"},
		"too many SGEs":      {&rc, verbs.SendWR{Opcode: verbs.OpSend, SGList: make([]verbs.SGE, 6)}, ucs.ErrInvalidParam, "6 SGEs, limit 5"},
		"atomic without SGE": {&rc, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd}, ucs.ErrInvalidParam, "want 1"},
		"SGE of 2 GiB":       {&rc, verbs.SendWR{Opcode: verbs.OpSend, SGList: []verbs.SGE{{Length: 1 << 31}}}, ucs.ErrTooLong, "2147483648 bytes"},
		"atomic of 2 GiB":    {&rc, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, SGList: []verbs.SGE{{Length: 1 << 31}}}, ucs.ErrTooLong, "2147483648 bytes"},
	} {
		assert.Zero(t, c.ring.Encode(0, &c.wr, &av), name)
		err := c.ring.Refused(&c.wr, &av)
		assert.ErrorIs(t, err, c.want, name)
		assert.ErrorContains(t, err, c.text, name)
	}
}

// Every shape of work request, at any place of the ring, through the device's decoder.
func TestEncode_DecodesToTheSame(t *testing.T) {
	r, _ := newSendRing(t, 16, 0x100, verbs.QPTypeRC, testLimits)
	sge := rapid.Custom(func(t *rapid.T) verbs.SGE {
		return verbs.SGE{Addr: rapid.Uint64().Draw(t, "addr"), Length: rapid.Uint32Range(0, MaxSGELen).Draw(t, "len"), LKey: rapid.Uint32().Draw(t, "lkey")}
	})
	rapid.Check(t, func(t *rapid.T) {
		wr := verbs.SendWR{
			Opcode: verbs.Opcode(rapid.ByteRange(0, 6).Draw(t, "op")), Flags: verbs.SendFlags(rapid.ByteRange(0, 7).Draw(t, "flags")),
			Imm: rapid.Uint32().Draw(t, "imm"), RemoteAddr: rapid.Uint64().Draw(t, "raddr"), RKey: rapid.Uint32().Draw(t, "rkey"),
			CompareAdd: rapid.Uint64().Draw(t, "cmp"), Swap: rapid.Uint64().Draw(t, "swap"),
		}
		sh := rcOps[wr.Opcode].shape
		switch {
		case sh == shapeAtomic:
			wr.SGList = []verbs.SGE{{Addr: 1, Length: 8, LKey: 2}}
		case sh != shapeRead && rapid.Bool().Draw(t, "inline"):
			wr.Flags |= verbs.SendInline
			wr.Inline = pattern(rapid.IntRange(0, 200).Draw(t, "n"))
		default:
			wr.SGList = rapid.SliceOfN(sge, 0, 5).Draw(t, "sges")
		}
		pi := rapid.Uint32().Draw(t, "pi")
		word := r.Encode(pi, &wr, nil)
		require.NotZero(t, word)
		var w WQE
		bbs, syn := DecodeWQE(&r.SQView, uint16(pi), uint16(pi+8), &w)
		require.Equal(t, SyndromeOK, syn)
		require.EqualValues(t, WordBBs(word), bbs)
		requireDecoded(t, &r.SQView, &wr, &w)
	})
}

func requireDecoded(t *rapid.T, v *SQView, wr *verbs.SendWR, w *WQE) {
	require.Equal(t, rcOps[wr.Opcode].op, w.Op)
	require.Equal(t, wr.Flags&verbs.SendSolicited != 0, w.Flags.Solicited())
	require.Equal(t, wr.Flags&verbs.SendFence != 0, w.Flags.Fenced())
	require.Equal(t, wr.Flags&verbs.SendSignaled != 0, w.Flags.Signaled())
	wantImm := wr.Imm & rcOps[wr.Opcode].immMask
	require.Equal(t, wantImm, w.Imm)
	head, tail := v.Inline(w)
	require.Equal(t, string(wr.Inline), string(head)+string(tail))
	want := []verbs.SGE{}
	for _, s := range wr.SGList {
		if s.Length > 0 {
			want = append(want, s)
		}
	}
	require.Equal(t, want, append([]verbs.SGE{}, w.SGEs()...))
	switch rcOps[wr.Opcode].shape {
	case shapeAtomic:
		swap, cmp := wr.Swap, wr.CompareAdd
		if wr.Opcode == verbs.OpAtomicFetchAdd {
			swap, cmp = wr.CompareAdd, 0
		}
		require.Equal(t, [2]uint64{swap, cmp}, [2]uint64{w.SwapOrAdd, w.Compare})
		fallthrough
	case shapeRead, shapeWrite:
		require.Equal(t, [2]uint64{wr.RemoteAddr, uint64(wr.RKey)}, [2]uint64{w.RAddr, uint64(w.RKey)})
	}
}

// What libmlx5 44.0 wrote for these work requests of an XRC initiator.
func TestEncode_XRC(t *testing.T) {
	const b = 0x7000
	r, mem := newSendRing(t, 8, 0x101, verbs.QPTypeXRCSend, testLimits)
	for _, c := range []struct {
		at   uint32
		wr   verbs.SendWR
		want string
	}{
		{0, verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SRQN: 0x801, RemoteAddr: 0x2000, RKey: 0x33,
			CompareAdd: 7, SGList: []verbs.SGE{{Addr: b, Length: 8, LKey: 0x99}}}, goldenXRCFetchAdd},
		{2, verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SRQN: 0x801,
			SGList: []verbs.SGE{{Addr: b, Length: 64, LKey: 0x99}}}, goldenXRCSend},
	} {
		want := words(t, c.want)
		require.NotZero(t, r.Encode(c.at, &c.wr, nil))
		assert.Equal(t, want, mem[c.at*BBLen:][:len(want)], c.want)
	}
}
