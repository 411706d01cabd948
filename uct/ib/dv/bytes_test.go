package dv

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct"
	"github.com/gucx/gucx/uct/ib/internal/rcwire"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// words parses the notation of the vectors: 32-bit words in memory order, with 0 for a word of
// zeros.
func words(t *testing.T, s string) (out []byte) {
	t.Helper()
	for _, w := range strings.Fields(strings.ReplaceAll(s, "·", " ")) {
		b, err := hex.DecodeString(strings.Repeat("0", 8-len(w)) + w)
		require.NoError(t, err)
		out = append(out, b...)
	}
	return out
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(7 * i)
	}
	return b
}

var rcLimits = verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 2, MaxInline: 128}

// TestGolden_RC compares WQEs and doorbells with those of libmlx5 44.0 for the same work requests.
func TestGolden_RC(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	e := newRawEP(b)
	q := &e.sq
	ring := bytesOf(b.raw.SQ)
	const a, c = 0x7f0000001000, 0x7f0000003000

	require.NoError(t, e.PutShort(pattern(8), 0x1122334455667788, uct.RKey(0xabcdef01)))
	want := words(t, "00000008 00010003 00000008 00000000 · 11223344 55667788 abcdef01 00000000 · 80000008 00070e15 1c232a31 00000000")
	assert.Equal(t, want[:44], ring[:44], "without the padding")
	assert.EqualValues(t, 1, b.raw.DBRec.Send())
	require.Len(t, b.hw.rings, 1)
	assert.Equal(t, b.raw.UAR.Off, b.hw.rings[0].off)
	assert.Equal(t, ring[:64], b.hw.rings[0].page[:64], "BlueFlame carries the whole WQE")
	assert.Equal(t, uint64(0x0000000800010003), b.hw.rings[0].first8)

	list := []verbs.SendWR{
		{Opcode: verbs.OpSendWithImm, Imm: 0x01020304, Flags: verbs.SendSolicited,
			SGList: []verbs.SGE{{Addr: a, Length: 100, LKey: 0x1000}, {Addr: a + 200, Length: 300, LKey: 0x1000}}},
		{Opcode: verbs.OpRDMARead, RemoteAddr: 0x1000, RKey: 0x22, SGList: []verbs.SGE{{Addr: a, Length: 100, LKey: 0x1000}}},
		{Opcode: verbs.OpAtomicCmpSwap, Flags: verbs.SendFence | verbs.SendSignaled, RemoteAddr: 0x2000, RKey: 0x33,
			CompareAdd: 0x1111, Swap: 0x2222, SGList: []verbs.SGE{{Addr: c, Length: 8, LKey: 0x1000}}}}
	n, err := q.PostSend(list)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	assert.Equal(t, words(t, "0000010b 00010003 00000002 01020304 · 00000064 00001000 00007f00 00001000 · 0000012c 00001000 00007f00 000010c8"), ring[64:112])
	assert.Equal(t, words(t, "00000210 00010003 0 0 · 0 00001000 00000022 0 · 00000064 00001000 00007f00 00001000"), ring[128:176])
	assert.Equal(t, words(t, "00000311 00010004 00000088 0 · 0 00002000 00000033 0 · 0 00002222 0 00001111 · 00000008 00001000 00007f00 00003000"), ring[192:256])
	assert.EqualValues(t, 4, b.raw.DBRec.Send())
	require.Len(t, b.hw.rings, 2, "a list rings once")
	assert.Equal(t, b.raw.UAR.Off+prm.BFBufLen, b.hw.rings[1].off, "buffers alternate")
	assert.Equal(t, words(t, "00000311 00010004"), b.hw.rings[1].page[:8])
}

// TestGolden_AtomicLengthIs8: the data segment of an atomic has length 8 for any length of its SGE.
func TestGolden_AtomicLengthIs8(t *testing.T) {
	for _, n := range []uint32{1, 4, 8, 100, prm.MaxSGELen} {
		b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
		wr := verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, RemoteAddr: 0x2000, RKey: 0x33, CompareAdd: 7,
			SGList: []verbs.SGE{{Addr: 0x7f0000003000, Length: n, LKey: 0x1000}}}
		_, err := b.queue().PostSend([]verbs.SendWR{wr})
		require.NoError(t, err)
		want := words(t, "00000012 00010004 0 0 · 0 00002000 00000033 0 · 0 00000007 0 0 · 00000008 00001000 00007f00 00003000")
		assert.Equal(t, want, bytesOf(b.raw.SQ)[:64], "an SGE of %d bytes", n)
	}
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	_, err := b.queue().PostSend([]verbs.SendWR{{Opcode: verbs.OpAtomicCmpSwap, SGList: make([]verbs.SGE, 2)}})
	assert.ErrorContains(t, err, "atomic with 2 SGEs, want 1")
}

// TestGolden_DoorbellsAlternate: without BlueFlame, doorbells of 8 bytes use the two buffers of a
// register alternately.
func TestGolden_DoorbellsAlternate(t *testing.T) {
	b := newBenchOf(t, t.Cleanup, verbs.QPTypeRC, rcLimits, mlx5.Config{ShutUpBF: true})
	e := newRawEP(b)
	for i := range uint32(4) {
		if i%2 == 0 {
			require.NoError(t, e.PutShort(pattern(8), 0x1122334455667788, uct.RKey(0xabcdef01)))
		} else {
			_, err := e.sq.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend}})
			require.NoError(t, err)
		}
		got := b.hw.rings[i]
		assert.Equal(t, b.raw.UAR.Off+i%2*prm.BFBufLen, got.off)
		assert.Equal(t, bytesOf(b.raw.SQ)[i*64:][:8], got.page[:8])
		assert.Equal(t, make([]byte, 56), got.page[8:64], "eight bytes")
	}
}

func TestGolden_UD(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeUD, rcLimits)
	require.EqualValues(t, 0x101, b.qp.Number())
	gid := verbs.GID{0xfe, 0x80, 15: 0xaa}
	ah, err := b.pd.CreateAH(verbs.AHAttr{Port: 1, Global: true, SGIDIndex: 1, HopLimit: 64, DGID: gid})
	require.NoError(t, err)
	defer ah.Close()
	_, err = b.queue().PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline,
		AH: ah, RemoteQPN: 0x99, RemoteQKey: 0x11111111, Inline: pattern(20)}})
	require.NoError(t, err)
	want := words(t, "0000000a 00010106 00000008 0 · 11111111 0 80000099 0000f10d · 00000000 02000000 00010040 00100000")
	want = append(append(want, gid[:]...), words(t, "80000014")...)
	assert.Equal(t, append(want, pattern(20)...), bytesOf(b.raw.SQ)[:88])
}

// TestGolden_InlineWraps: inline data that crosses the end of the ring continues at its start, in
// the ring and in the BlueFlame register.
func TestGolden_InlineWraps(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInline: 60})
	require.EqualValues(t, 8, b.raw.SQ.Count)
	e := newRawEP(b)
	for range 7 {
		require.NoError(t, e.PutShort(pattern(8), 0, 0))
	}
	_, err := e.sq.PostSend([]verbs.SendWR{{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline, Inline: pattern(60)}})
	require.NoError(t, err)
	ring := bytesOf(b.raw.SQ)
	assert.EqualValues(t, 9, b.raw.DBRec.Send())
	assert.Equal(t, words(t, "00000708 00010006"), ring[7*64:7*64+8], "ds is 6")
	assert.Equal(t, pattern(60), append(append([]byte(nil), ring[7*64+36:]...), ring[:32]...))
	last := b.hw.rings[len(b.hw.rings)-1]
	assert.Equal(t, append(append([]byte(nil), ring[7*64:]...), ring[:64]...), last.page[:128])
}

// sendWR draws a work request within rcLimits.
func sendWR(t *rapid.T, typ verbs.QPType, ah *verbs.AH) verbs.SendWR {
	ops := []verbs.Opcode{verbs.OpSend, verbs.OpSendWithImm}
	if typ != verbs.QPTypeUD {
		ops = append(ops, verbs.OpRDMAWrite, verbs.OpRDMAWriteWithImm, verbs.OpRDMARead, verbs.OpAtomicCmpSwap, verbs.OpAtomicFetchAdd)
	}
	wr := verbs.SendWR{
		Opcode:     rapid.SampledFrom(ops).Draw(t, "opcode"),
		Flags:      verbs.SendFlags(rapid.IntRange(0, 7).Draw(t, "flags")),
		Imm:        rapid.Uint32().Draw(t, "imm"),
		RemoteAddr: rapid.Uint64().Draw(t, "raddr"),
		RKey:       rapid.Uint32().Draw(t, "rkey"),
		CompareAdd: rapid.Uint64().Draw(t, "compare"),
		Swap:       rapid.Uint64().Draw(t, "swap"),
		AH:         ah, RemoteQPN: rapid.Uint32Range(0, invalidQPN).Draw(t, "qpn"), RemoteQKey: rapid.Uint32().Draw(t, "qkey"),
		SRQN: rapid.Uint32Range(0, invalidQPN).Draw(t, "srqn"),
	}
	sge := func(length uint32) verbs.SGE {
		return verbs.SGE{Addr: rapid.Uint64().Draw(t, "addr"), Length: length, LKey: rapid.Uint32().Draw(t, "lkey")}
	}
	switch {
	case wr.Opcode >= verbs.OpAtomicCmpSwap:
		wr.SGList = []verbs.SGE{sge(8)}
	case wr.Opcode <= verbs.OpSendWithImm && rapid.Bool().Draw(t, "inline"):
		wr.Flags |= verbs.SendInline
		wr.Inline = pattern(rapid.IntRange(0, rcLimits.MaxInline).Draw(t, "bytes"))
	default:
		for range rapid.IntRange(0, rcLimits.MaxSendSGE).Draw(t, "sges") {
			wr.SGList = append(wr.SGList, sge(rapid.SampledFrom([]uint32{0, 1, 4096, prm.MaxSGELen}).Draw(t, "length")))
		}
	}
	return wr
}

// TestPostSend_LikeVerbs posts the same lists through verbs and this package, several times round
// the ring. Rings, doorbell records and register stores have the same bytes.
func TestPostSend_LikeVerbs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom([]verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUD, verbs.QPTypeXRCSend}).Draw(t, "type")
		over := newBench(t, t.Cleanup, typ, rcLimits)
		direct := newBench(t, t.Cleanup, typ, rcLimits)
		ahs := make([]*verbs.AH, 2)
		for i, b := range []*bench{over, direct} {
			var err error
			ahs[i], err = b.pd.CreateAH(verbs.AHAttr{Port: 1, Global: true, SGIDIndex: 1, HopLimit: 64})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, ahs[i].Close()) })
		}
		q := direct.queue()
		for round := range uint32(rapid.IntRange(1, 60).Draw(t, "rounds")) {
			var list []verbs.SendWR
			for range rapid.IntRange(1, 4).Draw(t, "list") {
				list = append(list, sendWR(t, typ, ahs[0]))
			}
			before := q.pi
			n, err := over.qp.PostSend(list)
			require.NoError(t, err)
			for i := range list {
				list[i].AH = ahs[1]
				list[i].ID = uint64(round)<<8 | uint64(i)
			}
			got, err := q.PostSend(list)
			require.NoError(t, err)
			require.Equal(t, n, got)
			last := q.pi - 1 // find the WQE that contains the last basic block
			for *q.id(last) != list[n-1].ID && last != before {
				last--
			}
			over.complete(t, round, last)
			require.Equal(t, bytesOf(over.raw.SQ), bytesOf(direct.raw.SQ))
			require.Equal(t, over.raw.DBRec.Send(), direct.raw.DBRec.Send())
			require.Equal(t, over.hw.rings, direct.hw.rings)
		}
	})
}

// around returns the ring from byte i to its end, and then from its start.
func around(r provider.RawRing, i uint32) []byte {
	b := bytesOf(r)
	return append(append([]byte(nil), b[i:]...), b[:i]...)
}

// TestShort_LikeVerbs: short operations write the same WQEs as verbs, for each length and round the
// ring. The padding after inline data is not compared.
func TestShort_LikeVerbs(t *testing.T) {
	over := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	direct := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	e := newRawEP(direct)
	at, rung := uint32(0), 0 // basic block, doorbell
	check := func(wr verbs.SendWR, used int) {
		wr.Flags |= verbs.SendInline
		if e.Sig == e.PI {
			wr.Flags |= verbs.SendSignaled
		}
		_, err := over.qp.PostSend([]verbs.SendWR{wr})
		require.NoError(t, err)
		over.complete(t, uint32(rung), at)
		i := at % over.raw.SQ.Count * prm.BBLen
		want, got := around(over.raw.SQ, i), around(direct.raw.SQ, i)
		require.Equal(t, want[:used], got[:used])
		require.Equal(t, over.raw.DBRec.Send(), direct.raw.DBRec.Send())
		a, b := over.hw.rings[rung], direct.hw.rings[rung]
		require.Equal(t, a.off, b.off)
		require.Equal(t, a.first8, b.first8)
		require.Equal(t, a.page[:used], b.page[:used])
		require.EqualValues(t, e.PI, *e.sq.id(at))
		at += uint32(used+prm.BBLen-1) / prm.BBLen
		rung++
	}
	for round := range 5 {
		for n := 1; n <= rcLimits.MaxInline; n++ {
			require.NoError(t, e.PutShort(pattern(n), 0x1122334455667788, uct.RKey(0xabcdef01+uint64(n))))
			check(verbs.SendWR{Opcode: verbs.OpRDMAWrite, Inline: pattern(n), RemoteAddr: 0x1122334455667788, RKey: 0xabcdef01 + uint32(n)},
				prm.BBLen-maxPutBB+n)
		}
		for n := 0; n <= rcLimits.MaxInline-amWordLen; n++ {
			id := uint8(n % (uct.MaxAMID + 1))
			require.NoError(t, e.AMShort(id, 0x0807060504030201, pattern(n)))
			check(verbs.SendWR{Opcode: verbs.OpSendWithImm, Imm: uint32(rcwire.AM(id, 0)),
				Inline: append([]byte{1, 2, 3, 4, 5, 6, 7, 8}, pattern(n)...)}, prm.BBLen-maxAMBB+n)
		}
		if round%2 == 0 {
			e.CI = e.PI
		}
	}
}

func TestPostSend_Refuses(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	q := b.queue()
	good := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline, Inline: pattern(8)}
	for name, bad := range map[string]verbs.SendWR{
		"inline too long": {Opcode: verbs.OpSend, Flags: verbs.SendInline, Inline: pattern(b.qp.Cap().MaxInline + 1)},
		"inline read":     {Opcode: verbs.OpRDMARead, Flags: verbs.SendInline, Inline: pattern(8)},
		"too many pieces": {Opcode: verbs.OpSend, SGList: make([]verbs.SGE, b.qp.Cap().MaxSendSGE+1)},
		"2 GiB":           {Opcode: verbs.OpSend, SGList: []verbs.SGE{{Length: prm.MaxSGELen + 1}}},
		"no such opcode":  {Opcode: 77},
	} {
		pi := q.pi
		n, err := q.PostSend([]verbs.SendWR{good, bad, good})
		assert.Equal(t, 1, n, name)
		assert.ErrorContains(t, err, "post send", name)
		assert.Equal(t, pi+1, q.pi, "%s: the work request before it is posted", name)
	}
}

// TestSRQ_LikeVerbs posts and completes receives in random order with verbs and this package.
func TestSRQ_LikeVerbs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		over := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
		direct := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
		var q prm.RecvList
		_, err := openList(&q, direct.srq, true)
		require.NoError(t, err)
		rawOver, err := provider.RawSRQOf(over.srq)
		require.NoError(t, err)
		rawDirect, err := provider.RawSRQOf(direct.srq)
		require.NoError(t, err)
		var posted []uint16 // entries
		var cqes uint32
		id := uint64(0)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(posted) > 0 && rapid.Bool().Draw(t, "complete") {
				i := rapid.IntRange(0, len(posted)-1).Draw(t, "which")
				entry := posted[i]
				posted = append(posted[:i], posted[i+1:]...)
				over.cqe(t, cqes, &prm.CQE{Opcode: prm.CQERespSend, UserIndex: over.hw.qps[over.qp.Number()].UserIndex, WQECounter: entry})
				cqes++
				var wc [1]verbs.WC
				require.Equal(t, 1, over.cq.Poll(wc[:]))
				require.Equal(t, wc[0].ID, q.Take(entry))
			} else {
				wr := []verbs.RecvWR{{ID: id, SGList: []verbs.SGE{{Addr: id, Length: 100, LKey: 9}}}}
				id++
				head, _ := q.Ends()
				n, errOver := over.srq.PostRecv(wr)
				got, err := q.PostRecv(wr)
				require.Equal(t, n, got)
				require.Equal(t, errOver, err)
				if n == 1 {
					posted = append(posted, head)
				}
			}
			require.Equal(t, bytesOf(rawOver.Entries), bytesOf(rawDirect.Entries))
			require.Equal(t, rawOver.DBRec.Recv(), rawDirect.DBRec.Recv())
		}
	})
}

func TestGolden_SRQAndArm(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	var q prm.RecvList
	_, err := openList(&q, b.srq, true)
	require.NoError(t, err)
	_, err = q.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{{Addr: 0x7f0000001000, Length: 0x80, LKey: 0x1000}}}})
	require.NoError(t, err)
	raw, err := provider.RawSRQOf(b.srq)
	require.NoError(t, err)
	assert.Equal(t, words(t, "00000001 0 0 0 · 00000080 00001000 00007f00 00001000 · 0 00000100 0 0"), bytesOf(raw.Entries)[:48])
	assert.EqualValues(t, 1, raw.DBRec.Recv())
	_, err = q.PostRecv([]verbs.RecvWR{{SGList: make([]verbs.SGE, 4)}})
	assert.ErrorContains(t, err, "4 SGEs, limit 3")

	var c compQueue
	require.NoError(t, c.open(b.cq))
	rawCQ, err := provider.RawCQOf(b.cq)
	require.NoError(t, err)
	for range 3 {
		c.Take()
	}
	c.Give()
	assert.EqualValues(t, 3, rawCQ.DBRec.CI())
	b.hw.rings = nil
	require.NoError(t, c.Arm(false))
	assert.EqualValues(t, 3, rawCQ.DBRec.Arm())
	require.Len(t, b.hw.rings, 1)
	assert.EqualValues(t, 0x20, b.hw.rings[0].off)
	assert.Equal(t, words(t, "00000003 000000fd"), b.hw.rings[0].page[:8])
}

// TestBatch_OneDoorbell: a batch has one doorbell for each queue, or BlueFlame for a single WQE. A
// removed queue gets no doorbell.
func TestBatch_OneDoorbell(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	e := newRawEP(b)
	r := e.sq.reg
	require.True(t, r.direct)
	put := func() { require.NoError(t, e.PutShort(pattern(8), 0x1000, uct.RKey(7))) }

	r.beginBatch()
	put()
	_, err := e.sq.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend}, {Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline, Inline: pattern(100)}})
	require.NoError(t, err)
	put()
	assert.Empty(t, b.hw.rings)
	r.endBatch()
	require.Len(t, b.hw.rings, 1)
	assert.Equal(t, words(t, "00000508 00010003"), b.hw.rings[0].page[:8], "the last WQE, after 1, 1 and 3 blocks")
	assert.Equal(t, make([]byte, 56), b.hw.rings[0].page[8:64], "only its first 8 bytes")
	assert.EqualValues(t, 6, b.raw.DBRec.Send())

	r.beginBatch()
	put()
	r.endBatch()
	require.Len(t, b.hw.rings, 2)
	assert.Equal(t, bytesOf(b.raw.SQ)[6*64:6*64+48], b.hw.rings[1].page[:48], "BlueFlame")

	r.beginBatch()
	put()
	r.removeQueue(&e.sq)
	r.endBatch()
	r.beginBatch()
	r.endBatch()
	assert.Len(t, b.hw.rings, 2)
	assert.True(t, r.direct)
}
