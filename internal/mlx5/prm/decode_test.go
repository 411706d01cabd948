package prm

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// words parses 32-bit words in hex, in memory order; dots are for the reader.
func words(t testing.TB, s string) []byte {
	t.Helper()
	var out []byte
	for f := range strings.FieldsSeq(s) {
		if f == "·" {
			continue
		}
		var w uint32
		_, err := fmt.Sscanf(f, "%x", &w)
		require.NoError(t, err, f)
		out = binary.BigEndian.AppendUint32(out, w)
	}
	return out
}

// Work requests as libmlx5 44.0 writes them, QPN 0x100 or 0x101.
const (
	goldenWriteInline = "00000008 00010003 00000008 00000000 · 11223344 55667788 abcdef01 00000000 · 80000008 00070e15 1c232a31 00000000"
	goldenSendImm     = "0000010b 00010003 00000002 01020304 · 00000064 00001000 00007f00 00001000 · 0000012c 00001000 00007f00 000010c8"
	goldenRead        = "00000210 00010003 00000000 00000000 · 0 00001000 00000022 0 · 00000064 00001000 00007f00 00001000"
	goldenCAS         = "00000311 00010004 00000088 0 · 0 00002000 00000033 0 · 0 00002222 0 00001111 · 00000008 00001000 00007f00 00003000"
	goldenUD          = "0000000a 00010106 00000008 0 · 11111111 0 80000099 0000f10d · 00000000 02000000 00010040 00100000 · " +
		"fe800000 00000000 00000000 000000aa · 80000014 01020304 05060708 090a0b0c · 0d0e0f10 11121314 0 0"
	goldenXRCFetchAdd = "00000012 00010105 00000008 0 · 00000801 0 0 0 · 0 00002000 00000033 0 · 0 00000007 0 0 · 00000008 00000099 0 00007000"
	goldenXRCSend     = "0000020a 00010103 00000008 0 · 00000801 0 0 0 · 00000040 00000099 0 00007000"
)

func TestDecodeWQE_Golden(t *testing.T) {
	const a, b = 0x7f0000001000, 0x7f0000003000
	gid := verbs.GID{0xfe, 0x80, 15: 0xaa}
	cases := []struct {
		name   string
		typ    verbs.QPType
		qpn    uint32
		ci     uint16
		words  string
		want   WQE
		sges   []verbs.SGE
		inline string
		bbs    int
	}{
		{"RDMA_WRITE inline", verbs.QPTypeRC, 0x100, 0, goldenWriteInline,
			WQE{Op: OpRDMAWrite, Flags: CtrlCQUpdate, RAddr: 0x1122334455667788, RKey: 0xabcdef01, InlineLen: 8, InlineOff: 36, Len: 8},
			nil, "\x00\x07\x0e\x15\x1c\x23\x2a\x31", 1},
		{"SEND_IMM", verbs.QPTypeRC, 0x100, 1, goldenSendImm,
			WQE{Op: OpSendImm, Flags: CtrlSolicited, Index: 1, Imm: 0x01020304, NumSGE: 2, Len: 400},
			[]verbs.SGE{{Addr: a, Length: 100, LKey: 0x1000}, {Addr: a + 200, Length: 300, LKey: 0x1000}}, "", 1},
		{"RDMA_READ", verbs.QPTypeRC, 0x100, 2, goldenRead,
			WQE{Op: OpRDMARead, Index: 2, RAddr: 0x1000, RKey: 0x22, NumSGE: 1, Len: 100},
			[]verbs.SGE{{Addr: a, Length: 100, LKey: 0x1000}}, "", 1},
		{"ATOMIC_CS fenced", verbs.QPTypeRC, 0x100, 3, goldenCAS,
			WQE{Op: OpAtomicCS, Flags: CtrlFence | CtrlCQUpdate, Index: 3, RAddr: 0x2000, RKey: 0x33,
				SwapOrAdd: 0x2222, Compare: 0x1111, NumSGE: 1, Len: 8},
			[]verbs.SGE{{Addr: b, Length: 8, LKey: 0x1000}}, "", 1},
		{"UD SEND inline", verbs.QPTypeUD, 0x101, 0, goldenUD,
			WQE{Op: OpSend, Flags: CtrlCQUpdate, InlineLen: 20, InlineOff: 68, Len: 20,
				AV: AV{QKey: 0x11111111, QPN: 0x99, DLID: 0xf10d, MAC: [6]byte{2, 0, 0, 0, 0, 1}, HopLimit: 64, SGIDIndex: 1, DGID: gid}},
			nil, "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14", 2},
		{"XRC FETCH_ADD", verbs.QPTypeXRCSend, 0x101, 0, goldenXRCFetchAdd,
			WQE{Op: OpAtomicFA, Flags: CtrlCQUpdate, SRQN: 0x801, RAddr: 0x2000, RKey: 0x33, SwapOrAdd: 7, NumSGE: 1, Len: 8},
			[]verbs.SGE{{Addr: 0x7000, Length: 8, LKey: 0x99}}, "", 2},
		{"XRC SEND", verbs.QPTypeXRCSend, 0x101, 2, goldenXRCSend,
			WQE{Op: OpSend, Flags: CtrlCQUpdate, Index: 2, SRQN: 0x801, NumSGE: 1, Len: 64},
			[]verbs.SGE{{Addr: 0x7000, Length: 64, LKey: 0x99}}, "", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sq, mem := newSQ(t, 64, c.qpn, c.typ)
			copy(mem[int(c.ci)*BBLen:], words(t, c.words))
			var w WQE
			bbs, syn := DecodeWQE(&sq, c.ci, c.ci+8, &w)
			require.Equal(t, SyndromeOK, syn)
			assert.Equal(t, c.bbs, bbs)
			copy(c.want.SGE[:], c.sges)
			assert.Equal(t, c.want, w)
			assert.ElementsMatch(t, c.sges, w.SGEs())
			head, tail := sq.Inline(&w)
			assert.Equal(t, c.inline, string(head)+string(tail))
		})
	}
}

func TestCtrlFlags(t *testing.T) {
	assert.True(t, CtrlFlags(0x88).Signaled())
	assert.True(t, CtrlFlags(0x88).Fenced())
	assert.False(t, CtrlFlags(0x88).Solicited())
	assert.True(t, CtrlFlags(0x02).Solicited())
	assert.False(t, CtrlInitiatorFence.Fenced(), "waits for no read")
	assert.True(t, CtrlFenceOnly.Fenced())
	assert.True(t, CtrlStrongOrdering.Fenced())
}

// An inline segment that runs over the end of the ring goes on at its start.
func TestDecodeWQE_InlineWraps(t *testing.T) {
	sq, mem := newSQ(t, 8, 0x100, verbs.QPTypeRC)
	payload := pattern(60)
	putWQE(&sq, testWQE{op: OpRDMAWrite, index: 15, qpn: 0x100, raddr: 0x10, rkey: 0x20, inline: payload})
	assert.Equal(t, words(t, "00000f08 00010006"), mem[7*BBLen:7*BBLen+8])
	assert.Equal(t, payload[28:], mem[:32])

	var w WQE
	bbs, syn := DecodeWQE(&sq, 15, 17, &w)
	require.Equal(t, SyndromeOK, syn)
	assert.Equal(t, 2, bbs)
	head, tail := sq.Inline(&w)
	assert.Equal(t, payload[:28], head)
	assert.Equal(t, payload[28:], tail)
}

func TestDecodeWQE_SegmentsWrap(t *testing.T) {
	sq, _ := newSQ(t, 8, 0x100, verbs.QPTypeRC)
	want := testWQE{op: OpSend, index: 7, qpn: 0x100, sges: []verbs.SGE{{Addr: 1, Length: 1, LKey: 1}, {Addr: 2, Length: 2, LKey: 2},
		{Addr: 3, Length: 3, LKey: 3}, {Addr: 4, Length: 4, LKey: 4}, {Addr: 5, Length: 5, LKey: 5}}}
	putWQE(&sq, want)
	var w WQE
	bbs, syn := DecodeWQE(&sq, 7, 9, &w)
	require.Equal(t, SyndromeOK, syn)
	assert.Equal(t, 2, bbs)
	assert.Equal(t, want.sges, w.SGEs())
	assert.Equal(t, uint64(15), w.Len)
}

// The producer index wraps at 16 bits, with the ring's length a divisor.
func TestDecodeWQE_IndexWraps(t *testing.T) {
	sq, _ := newSQ(t, 8, 0x100, verbs.QPTypeRC)
	putWQE(&sq, testWQE{op: OpSend, index: 0xffff, qpn: 0x100, inline: pattern(50)})
	var w WQE
	bbs, syn := DecodeWQE(&sq, 0xffff, 1, &w)
	require.Equal(t, SyndromeOK, syn)
	assert.Equal(t, 2, bbs)
	head, tail := sq.Inline(&w)
	assert.Equal(t, pattern(50), append(append([]byte{}, head...), tail...))
}

// A byte count of 0 in a data pointer means 2^31 to hardware.
func TestDecodeWQE_ZeroByteCount(t *testing.T) {
	sq, _ := newSQ(t, 8, 0x100, verbs.QPTypeRC)
	putWQE(&sq, testWQE{op: OpSend, qpn: 0x100, sges: []verbs.SGE{{Addr: 1, LKey: 1}}})
	var w WQE
	_, syn := DecodeWQE(&sq, 0, 1, &w)
	require.Equal(t, SyndromeOK, syn)
	assert.Equal(t, uint64(1)<<31, w.Len)
}

// Inline bytes, then data pointers: a header that goes with a zero-copy payload.
func TestDecodeWQE_InlineThenData(t *testing.T) {
	sq, _ := newSQ(t, 8, 0x100, verbs.QPTypeRC)
	putWQE(&sq, testWQE{op: OpSend, qpn: 0x100, inline: pattern(12), sges: []verbs.SGE{{Addr: 9, Length: 100, LKey: 8}}})
	var w WQE
	_, syn := DecodeWQE(&sq, 0, 1, &w)
	require.Equal(t, SyndromeOK, syn)
	assert.Equal(t, uint64(112), w.Len)
	assert.Equal(t, uint32(12), w.InlineLen)
	assert.Len(t, w.SGEs(), 1)
}

func TestDecodeWQE_NOP(t *testing.T) {
	sq, _ := newSQ(t, 8, 0x100, verbs.QPTypeUD)
	PutCtrl(sq.BB(2), CtrlWord(OpNOP, 2, 0x100, 9), CtrlCQUpdate, 0)
	var w WQE
	bbs, syn := DecodeWQE(&sq, 2, 8, &w)
	assert.Equal(t, SyndromeOK, syn)
	assert.Equal(t, 3, bbs)
	assert.Zero(t, w.Len)
}

func TestDecodeWQE_Refused(t *testing.T) {
	const good = "00000008 00010003 00000008 00000000 · 0 00001000 1 0 · 00000008 00000001 0 00000001"
	cases := []struct {
		name  string
		typ   verbs.QPType
		words string
		pi    uint16
		bbs   int
		syn   Syndrome
	}{
		{"nothing posted", verbs.QPTypeRC, good, 0, 1, SyndromeLocalQPOp},
		{"length 0", verbs.QPTypeRC, "00000008 00010000", 8, 1, SyndromeLocalQPOp},
		{"beyond the producer", verbs.QPTypeRC, "00000008 0001000f", 2, 2, SyndromeLocalQPOp},
		{"wrong index", verbs.QPTypeRC, "00000108 00010003", 8, 1, SyndromeLocalQPOp},
		{"wrong QPN", verbs.QPTypeRC, "00000008 00010103", 8, 1, SyndromeLocalQPOp},
		{"opmod", verbs.QPTypeRC, "08000012 00010004", 8, 1, SyndromeLocalQPOp},
		{"reserved length bits", verbs.QPTypeRC, "00000008 00010043", 8, 1, SyndromeLocalQPOp},
		{"unknown opcode", verbs.QPTypeRC, "00000002 00010003", 8, 1, SyndromeLocalQPOp},
		{"refused opcode", verbs.QPTypeRC, "00000025 00010009", 8, 3, SyndromeLocalQPOp},
		{"unknown service", verbs.QPType(77), good, 8, 1, SyndromeLocalQPOp},
		{"write on UD", verbs.QPTypeUD, good, 8, 1, SyndromeLocalQPOp},
		{"no room for raddr", verbs.QPTypeRC, "00000008 00010001", 8, 1, SyndromeLocalQPOp},
		{"no room for atomic", verbs.QPTypeRC, "00000011 00010002", 8, 1, SyndromeLocalQPOp},
		{"no room for XRC", verbs.QPTypeXRCSend, "0000000a 00010001", 8, 1, SyndromeLocalQPOp},
		{"no room for AV", verbs.QPTypeUD, "0000000a 00010003", 8, 1, SyndromeLocalQPOp},
		{"short AV", verbs.QPTypeUD, "0000000a 00010004 0 0 · 0 0 00000099 0", 8, 1, SyndromeLocalQPOp},
		{"atomic without data", verbs.QPTypeRC, "00000012 00010003", 8, 1, SyndromeLocalLength},
		{"atomic of 4 bytes", verbs.QPTypeRC, "00000012 00010004 0 0 · 0 0 0 0 · 0 0 0 0 · 4 1 0 1", 8, 1, SyndromeLocalLength},
		{"inline too long", verbs.QPTypeRC, "00000008 00010003 0 0 · 0 0 0 0 · 8000000d", 8, 1, SyndromeLocalQPOp},
		{"inline absurd", verbs.QPTypeRC, "00000008 00010003 0 0 · 0 0 0 0 · ffffffff", 8, 1, SyndromeLocalQPOp},
		{"inline too short", verbs.QPTypeRC, "00000008 00010004 0 0 · 0 0 0 0 · 80000008 0 0 0 · 80000004", 8, 1, SyndromeLocalQPOp},
		{"inline in a read", verbs.QPTypeRC, "00000010 00010003 0 0 · 0 0 0 0 · 80000004", 8, 1, SyndromeLocalQPOp},
		{"inline after data", verbs.QPTypeRC, "0000000a 00010003 0 0 · 4 1 0 1 · 80000004", 8, 1, SyndromeLocalQPOp},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sq, mem := newSQ(t, 64, 0x100, c.typ)
			copy(mem, words(t, c.words))
			var w WQE
			bbs, syn := DecodeWQE(&sq, 0, c.pi, &w)
			assert.Equal(t, c.syn, syn)
			assert.Equal(t, c.bbs, bbs)
			assert.Equal(t, c.bbs, SkipWQE(&sq, 0, c.pi))
		})
	}
}

// testWQE is what putWQE writes.
type testWQE struct {
	op        Opcode
	flags     CtrlFlags
	index     uint16
	qpn, imm  uint32
	srqn      uint32 // XRC
	av        AV     // UD
	raddr     uint64
	rkey      uint32
	swap, cmp uint64
	inline    []byte
	sges      []verbs.SGE
}

// putWQE is a slow encoder that says what the format is, one unit after another.
func putWQE(v *SQView, w testWQE) (ds int) {
	units := [][SegLen]byte{{}}
	add := func(put func(*Seg)) {
		var s Seg
		put(&s)
		units = append(units, s)
	}
	switch v.typ {
	case verbs.QPTypeUD:
		var b [AVLen]byte
		w.av.Put(&b)
		for i := 0; i < AVLen; i += SegLen {
			add(func(s *Seg) { copy(s[:], b[i:]) })
		}
	case verbs.QPTypeXRCSend:
		add(func(s *Seg) { putXRC(s, w.srqn) })
	}
	if sh := shapes[w.op]; sh == shapeWrite || sh == shapeRead || sh == shapeAtomic {
		add(func(s *Seg) { putRaddr(s, w.raddr, w.rkey) })
		if sh == shapeAtomic {
			add(func(s *Seg) { putAtomicOperands(s, w.swap, w.cmp) })
		}
	}
	if n := len(w.inline); n > 0 {
		b := make([]byte, InlineSegs(n)*SegLen)
		putInlineHeader((*Seg)(b), uint32(n))
		copy(b[InlineHdrLen:], w.inline)
		for i := 0; i < len(b); i += SegLen {
			add(func(s *Seg) { copy(s[:], b[i:]) })
		}
	}
	for _, sge := range w.sges {
		add(func(s *Seg) { PutData(s, sge) })
	}
	var ctrl BB
	PutCtrl(&ctrl, CtrlWord(w.op, w.index, w.qpn, uint8(len(units))), w.flags, w.imm)
	copy(units[0][:], ctrl[:])
	for i, u := range units {
		*v.seg(uint32(w.index)*SegsPerBB + uint32(i)) = u
	}
	return len(units)
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}

func drawWQE(t *rapid.T, typ verbs.QPType) testWQE {
	ops := []Opcode{OpSend, OpSendImm, OpRDMAWrite, OpRDMAWriteImm, OpRDMARead, OpAtomicCS, OpAtomicFA}
	if typ == verbs.QPTypeUD {
		ops = ops[:2]
	}
	w := testWQE{
		op: rapid.SampledFrom(ops).Draw(t, "op"), flags: CtrlFlags(rapid.Byte().Draw(t, "flags")),
		index: rapid.Uint16().Draw(t, "index"), qpn: 0x100, imm: rapid.Uint32().Draw(t, "imm"),
		raddr: rapid.Uint64().Draw(t, "raddr"), rkey: rapid.Uint32().Draw(t, "rkey"),
		swap: rapid.Uint64().Draw(t, "swap"), cmp: rapid.Uint64().Draw(t, "cmp"),
		srqn: rapid.Uint32Range(0, qpnMask).Draw(t, "srqn"),
		av: AV{QKey: rapid.Uint32().Draw(t, "qkey"), QPN: rapid.Uint32Range(0, qpnMask).Draw(t, "qpn"),
			RateSL: rapid.Byte().Draw(t, "sl"), Path: rapid.ByteRange(0, 127).Draw(t, "path"), DLID: rapid.Uint16().Draw(t, "dlid"),
			TrafficClass: rapid.Byte().Draw(t, "tc"), HopLimit: rapid.Byte().Draw(t, "hop"), GRH: rapid.Bool().Draw(t, "grh"),
			SGIDIndex: rapid.Byte().Draw(t, "sgid"), FlowLabel: rapid.Uint32Range(0, avFlowMask).Draw(t, "flow"),
			MAC: [6]byte{1, 2, 3, 4, 5, 6}, DGID: verbs.GID{1, 2, 3, 15: 4}},
	}
	sge := rapid.Custom(func(t *rapid.T) verbs.SGE {
		return verbs.SGE{Addr: rapid.Uint64().Draw(t, "addr"), Length: rapid.Uint32Range(1, zeroIsLen-1).Draw(t, "len"), LKey: rapid.Uint32().Draw(t, "lkey")}
	})
	switch shapes[w.op] {
	case shapeAtomic:
		w.sges = []verbs.SGE{{Addr: w.raddr, Length: AtomicOperandLen, LKey: w.rkey}}
	case shapeRead:
		w.sges = rapid.SliceOfN(sge, 0, 30).Draw(t, "sges")
	default:
		w.inline = pattern(rapid.IntRange(0, 400).Draw(t, "inline"))
		w.sges = rapid.SliceOfN(sge, 0, 30).Draw(t, "sges")
	}
	return w
}

// What is encoded is what is decoded, at any place of the ring.
func TestDecodeWQE_RoundTrip(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUD, verbs.QPTypeXRCSend} {
		sq, _ := newSQ(t, 32, 0x100, typ)
		t.Run(fmt.Sprint(typ), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				in := drawWQE(t, typ)
				ds := putWQE(&sq, in)
				var w WQE
				bbs, syn := DecodeWQE(&sq, in.index, in.index+uint16(BBs(ds)), &w)
				require.Equal(t, SyndromeOK, syn)
				require.Equal(t, BBs(ds), bbs)
				requireSame(t, &sq, in, &w)
			})
		})
	}
}

func requireSame(t *rapid.T, sq *SQView, in testWQE, w *WQE) {
	require.Equal(t, in.op, w.Op)
	require.Equal(t, in.flags, w.Flags)
	require.Equal(t, in.imm, w.Imm)
	require.Equal(t, in.index, w.Index)
	head, tail := sq.Inline(w)
	require.Equal(t, string(in.inline), string(head)+string(tail))
	require.Equal(t, append([]verbs.SGE{}, in.sges...), append([]verbs.SGE{}, w.SGEs()...))
	sum := uint64(len(in.inline))
	for _, s := range in.sges {
		sum += uint64(s.Length)
	}
	require.Equal(t, sum, w.Len)
	if shapes[in.op] != shapeSend {
		require.Equal(t, [2]uint64{in.raddr, uint64(in.rkey)}, [2]uint64{w.RAddr, uint64(w.RKey)})
	}
	if s, ok := sq.ShortWrite(in.index); ok {
		require.True(t, sameShort(s, sq, w))
	}
	if shapes[in.op] == shapeAtomic {
		require.Equal(t, [2]uint64{in.swap, in.cmp}, [2]uint64{w.SwapOrAdd, w.Compare})
	}
	switch sq.typ {
	case verbs.QPTypeUD:
		require.Equal(t, in.av, w.AV)
	case verbs.QPTypeXRCSend:
		require.Equal(t, in.srqn, w.SRQN)
	}
}

// sameShort reports whether w is what s says.
func sameShort(s ShortWrite, sq *SQView, w *WQE) bool {
	raddr, rkey := s.Target()
	head, tail := sq.Inline(w)
	return w.Op == OpRDMAWrite && w.NumSGE == 0 && w.RAddr == raddr && w.RKey == rkey &&
		w.Flags.Signaled() == s.Signaled() && string(head) == string(s.Data()) && len(tail) == 0
}

// A write whose inline bytes leave its basic block is not short, nor is one that has
// none, or data pointers, or another service.
func TestShortWrite(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUD, verbs.QPTypeXRCSend} {
		sq, _ := newSQ(t, 32, 0x100, typ)
		for _, op := range []Opcode{OpRDMAWrite, OpRDMAWriteImm, OpSend} {
			for n := range 64 {
				in := testWQE{op: op, index: 0xfff0 + uint16(n), qpn: 0x100, flags: CtrlCQUpdate * CtrlFlags(n%2),
					raddr: 0x1122334455667788, rkey: 0x99aabbcc, inline: pattern(n)}
				putWQE(&sq, in)
				s, ok := sq.ShortWrite(in.index)
				want := typ == verbs.QPTypeRC && op == OpRDMAWrite && n >= 1 && n <= 28
				require.Equal(t, want, ok, "service %d, opcode %d, %d bytes", typ, op, n)
				if !ok {
					continue
				}
				raddr, rkey := s.Target()
				assert.Equal(t, []any{in.raddr, in.rkey, in.inline, n%2 == 1}, []any{raddr, rkey, s.Data(), s.Signaled()})
				_, ok = sq.ShortWrite(in.index + 32)
				assert.False(t, ok, "of the pass before")
			}
		}
	}
}

// FuzzDecodeWQE feeds any ring. The decoder must stay inside it, must claim a
// sensible length, and what is a short write must be the same to it.
func FuzzDecodeWQE(f *testing.F) {
	for i, s := range []string{goldenWriteInline, goldenSendImm, goldenRead, goldenCAS, goldenUD, goldenXRCFetchAdd, goldenXRCSend} {
		f.Add(words(f, s), uint8(i), uint16(0), uint16(4))
	}
	f.Add(words(f, "0 0 0 0"), uint8(0), uint16(0xffff), uint16(3))
	types := []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUD, verbs.QPTypeXRCSend}
	rings := map[verbs.QPType]SQView{}
	mems := map[verbs.QPType][]byte{}
	for _, typ := range types {
		rings[typ], mems[typ] = newSQ(f, 4, 0x100, typ)
	}
	f.Fuzz(func(t *testing.T, data []byte, typ uint8, ci, pi uint16) {
		qpt := types[int(typ)%len(types)]
		sq, mem := rings[qpt], mems[qpt]
		clear(mem)
		copy(mem, data)
		be.PutUint32(mem[int(ci%4)*BBLen:], uint32(ci)<<8|uint32(mem[int(ci%4)*BBLen+3]))
		var w WQE
		bbs, syn := DecodeWQE(&sq, ci, pi, &w)
		if bbs < 1 || bbs > max(1, int(pi-ci)) || bbs > 16 || bbs != SkipWQE(&sq, ci, pi) {
			t.Fatalf("%d basic blocks from %d to %d", bbs, ci, pi)
		}
		s, short := sq.ShortWrite(ci)
		if short && ci != pi && (syn != SyndromeOK || bbs != 1 || !sameShort(s, &sq, &w)) {
			t.Fatalf("syndrome %d and %+v, but a short write", syn, w)
		}
		if syn != SyndromeOK {
			return
		}
		head, tail := sq.Inline(&w)
		if len(head)+len(tail) != int(min(w.InlineLen, 4*BBLen)) {
			t.Fatalf("inline %d+%d of %d", len(head), len(tail), w.InlineLen)
		}
	})
}

func BenchmarkDecodeWQE(b *testing.B) {
	sq, mem := newSQ(b, 64, 0x100, verbs.QPTypeRC)
	copy(mem, words(b, goldenWriteInline))
	var w WQE
	b.ReportAllocs()
	for b.Loop() {
		if _, syn := DecodeWQE(&sq, 0, 1, &w); syn != SyndromeOK {
			b.Fatal(syn)
		}
	}
}
