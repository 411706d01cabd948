package prm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// The words of three completions, as the format has them.
var goldenCQEs = []struct {
	name  string
	words string
	want  CQE
}{
	{"REQ", "0 0 0 0 · 0 0 0 0 · 00000005 0 0 0 · 0 0 08000100 00030000",
		CQE{Opcode: CQEReq, UserIndex: 5, WQECounter: 3, SendOp: OpRDMAWrite, QPN: 0x100}},
	{"RESP_SEND_IMM", "0 0 0 0 · 0 0 10000077 0 · 00000005 deadbeef 0 0000004d · 0 0 00000101 00020032",
		CQE{Opcode: CQERespSendImm, Solicited: true, UserIndex: 5, WQECounter: 2, QPN: 0x101, SrcQP: 0x77, GRH: 1, ByteCount: 77, Imm: 0xdeadbeef}},
	{"REQ_ERR", "0 0 0 0 · 0 0 0 0 · 00000005 0 0 0 · 0 00008115 10000100 000400d0",
		CQE{Opcode: CQEReqErr, UserIndex: 5, WQECounter: 4, SendOp: OpRDMARead, QPN: 0x100, Syndrome: SyndromeRetryExceeded, VendorErr: 0x81}},
}

func TestCQE_Golden(t *testing.T) {
	for _, c := range goldenCQEs {
		t.Run(c.name, func(t *testing.T) {
			cq, mem := newCQ(t, 1)
			for i := range mem {
				mem[i] = 0xee // of an earlier round
			}
			cq.Slot(0).Write(&c.want, 0)
			assert.Equal(t, words(t, c.words), mem)
			var got CQE
			require.True(t, cq.Slot(0).Read(&got, 0))
			assert.Equal(t, c.want, got)
			assert.False(t, cq.Slot(0).Read(&got, 1), "of the other pass")
		})
	}
}

// The short form writes the same bytes.
func TestCQE_WriteSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := CQE{Opcode: CQEReq, SendOp: Opcode(rapid.Byte().Draw(t, "op")), WQECounter: rapid.Uint16().Draw(t, "index"),
			QPN: rapid.Uint32Range(0, qpnMask).Draw(t, "qpn"), UserIndex: rapid.Uint32Range(0, qpnMask).Draw(t, "uidx"),
			ByteCount: rapid.Uint32().Draw(t, "n")}
		owner := rapid.ByteRange(0, 1).Draw(t, "owner")
		var want, got CQESlot
		for i := range got.body {
			got.body[i] = 0xee // of an earlier round
		}
		want.Write(&c, owner)
		got.WriteSent(c.SendOp, c.WQECounter, c.QPN, c.UserIndex, c.ByteCount, owner)
		require.Equal(t, want, got)
	})
}

func TestCQE_Ownership(t *testing.T) {
	cq, mem := newCQ(t, 2)
	for i := range cq.Count() {
		cq.Slot(i).Init()
	}
	assert.Equal(t, byte(0xf0), mem[63])
	assert.Equal(t, byte(0xf0), mem[127])
	var c CQE
	for i := range uint32(9) {
		require.False(t, cq.Slot(i).Read(&c, cq.Owner(i)), "index %d before it is written", i)
		cq.Slot(i).Write(&CQE{WQECounter: uint16(i)}, cq.Owner(i))
		require.True(t, cq.Slot(i).Read(&c, cq.Owner(i)))
		require.Equal(t, uint16(i), c.WQECounter)
	}
}

func TestCQE_ForeignFormatIsRefused(t *testing.T) {
	cq, mem := newCQ(t, 1)
	var c CQE
	for _, format := range []byte{1, 2, 3} {
		cq.Slot(0).Write(&CQE{}, 0)
		mem[63] |= format << 2
		assert.False(t, cq.Slot(0).Read(&c, 0))
	}
}

func TestSyndrome_Status(t *testing.T) {
	want := map[Syndrome]verbs.WCStatus{
		0x01: 1, 0x02: 2, 0x04: 4, 0x05: 5, 0x06: 6, 0x10: 7, 0x11: 8,
		0x12: 9, 0x13: 10, 0x14: 11, 0x15: 12, 0x16: 13, 0x22: 16,
	}
	for s := range 256 {
		w, known := want[Syndrome(s)]
		if !known {
			w = verbs.WCGeneralErr
		}
		assert.Equal(t, w, Syndrome(s).Status(), "%#x", s)
	}
}

func TestCQE_RoundTrip(t *testing.T) {
	cq, _ := newCQ(t, 1)
	ops := []CQEOpcode{CQEReq, CQERespWrImm, CQERespSend, CQERespSendImm, CQERespSendInv, CQEReqErr, CQERespErr}
	rapid.Check(t, func(t *rapid.T) {
		in := CQE{
			Opcode: rapid.SampledFrom(ops).Draw(t, "op"), Solicited: rapid.Bool().Draw(t, "se"),
			UserIndex: rapid.Uint32Range(0, qpnMask).Draw(t, "uidx"), WQECounter: rapid.Uint16().Draw(t, "counter"),
			SendOp: Opcode(rapid.Byte().Draw(t, "sop")), QPN: rapid.Uint32Range(0, qpnMask).Draw(t, "qpn"),
		}
		if in.IsError() {
			in.Syndrome, in.VendorErr = Syndrome(rapid.Byte().Draw(t, "syn")), rapid.Byte().Draw(t, "vendor")
		} else {
			in.ByteCount, in.Imm = rapid.Uint32().Draw(t, "bytes"), rapid.Uint32().Draw(t, "imm")
			in.SrcQP, in.SL = rapid.Uint32Range(0, qpnMask).Draw(t, "src"), rapid.ByteRange(0, 15).Draw(t, "sl")
			in.GRH, in.Path = rapid.ByteRange(0, 3).Draw(t, "grh"), rapid.ByteRange(0, 127).Draw(t, "path")
			in.SLID, in.Timestamp = rapid.Uint16().Draw(t, "slid"), rapid.Uint64().Draw(t, "ts")
		}
		owner := rapid.ByteRange(0, 1).Draw(t, "owner")
		cq.Slot(0).Write(&in, owner)
		var out CQE
		require.True(t, cq.Slot(0).Read(&out, owner))
		require.Equal(t, in, out)
	})
}

// FuzzReadCQE: whatever the device writes is read without a panic, and what was
// read, written again, reads the same.
func FuzzReadCQE(f *testing.F) {
	for _, g := range goldenCQEs {
		f.Add(words(f, g.words), byte(0))
	}
	f.Add(make([]byte, CQELen), byte(1))
	cq, mem := newCQ(f, 1)
	f.Fuzz(func(t *testing.T, data []byte, owner byte) {
		owner &= 1
		clear(mem)
		copy(mem, data)
		var a, b CQE
		if !cq.Slot(0).Read(&a, owner) {
			return
		}
		if a.Opcode == CQEInvalid {
			t.Fatal("read an entry that nobody has written")
		}
		cq.Slot(0).Write(&a, owner)
		if !cq.Slot(0).Read(&b, owner) || a != b {
			t.Fatalf("%+v, then %+v", a, b)
		}
	})
}

func TestDBRec(t *testing.T) {
	d, mem := newDBRec(t)
	d.StoreRecv(1)
	d.StoreSend(0xfffe)
	assert.Equal(t, words(t, "00000001 0000fffe"), mem)
	assert.Equal(t, uint16(1), d.Recv())
	assert.Equal(t, uint16(0xfffe), d.Send())

	d.StoreCI(0xff000003)
	d.StoreArm(ArmWord(5, true, 0x01000007))
	assert.Equal(t, words(t, "00000003 11000007"), mem)
	assert.Equal(t, uint32(3), d.CI())
	sn, solicited, ci := SplitArmWord(d.Arm())
	assert.Equal(t, uint32(1), sn)
	assert.True(t, solicited)
	assert.Equal(t, uint32(7), ci)
}

func TestCtrlWord_Split(t *testing.T) {
	index, qpn := SplitCtrlWord(CtrlWord(OpRDMAWrite, 0x1234, 0xabcdef, 63))
	assert.Equal(t, uint16(0x1234), index)
	assert.Equal(t, uint32(0xabcdef), qpn)
}
