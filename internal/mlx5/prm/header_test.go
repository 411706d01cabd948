package prm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/uct/ib/verbs"
)

// layoutRow is one fact about the format: as a C expression over the public
// header, and as this package's code has it.
type layoutRow struct {
	c   string
	own int
}

// firstByte is the offset of the first byte that put makes nonzero: where the
// encoder has a field that is set to all ones.
func firstByte(put func(b *BB)) int {
	var b BB
	put(&b)
	return bytes.IndexFunc(b[:], func(r rune) bool { return r != 0 })
}

func inSeg(put func(s *Seg)) int {
	return firstByte(func(b *BB) { put((*Seg)(b[:])) })
}

func inAV(a AV) int {
	return firstByte(func(b *BB) {
		var clean [AVLen]byte
		(&AV{}).Put(&clean)
		a.Put((*[AVLen]byte)(b[:]))
		for i := range clean {
			b[i] ^= clean[i]
		}
	})
}

func inCQE(c CQE) int {
	var s, clean CQESlot
	s.Write(&c, 0)
	clean.Write(&CQE{Opcode: c.Opcode}, 0)
	a, b := slotBytes(&s), slotBytes(&clean)
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

const ones = 1<<32 - 1

// layout is checked against testdata/mlx5dv.txt always, and that file against the
// header where gcc and the header are installed.
var layout = []layoutRow{
	{"MLX5_SEND_WQE_BB", BBLen},
	{"sizeof(struct mlx5_wqe_ctrl_seg)", CtrlLen},
	{"offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se)", firstByte(func(b *BB) { PutCtrl(b, 0, 0xff, 0) })},
	{"offsetof(struct mlx5_wqe_ctrl_seg, imm)", firstByte(func(b *BB) { PutCtrl(b, 0, 0, ones) })},
	{"offsetof(struct mlx5_wqe_ctrl_seg, opmod_idx_opcode)+3", firstByte(func(b *BB) { PutCtrl(b, CtrlWord(0xff, 0, 0, 0), 0, 0) })},
	{"offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds)", firstByte(func(b *BB) { PutCtrl(b, CtrlWord(0, 0, qpnMask, 0), 0, 0) })},
	{"offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds)+3", firstByte(func(b *BB) { PutCtrl(b, CtrlWord(0, 0, 0, MaxDS), 0, 0) })},
	{"sizeof(struct mlx5_wqe_raddr_seg)", RaddrLen},
	{"offsetof(struct mlx5_wqe_raddr_seg, raddr)", inSeg(func(s *Seg) { putRaddr(s, 1<<63, 0) })},
	{"offsetof(struct mlx5_wqe_raddr_seg, rkey)", inSeg(func(s *Seg) { putRaddr(s, 0, ones) })},
	{"sizeof(struct mlx5_wqe_atomic_seg)", AtomicLen},
	{"offsetof(struct mlx5_wqe_atomic_seg, swap_add)", inSeg(func(s *Seg) { putAtomicOperands(s, 1<<63, 0) })},
	{"offsetof(struct mlx5_wqe_atomic_seg, compare)", inSeg(func(s *Seg) { putAtomicOperands(s, 0, 1<<63) })},
	{"sizeof(struct mlx5_wqe_data_seg)", DataLen},
	{"offsetof(struct mlx5_wqe_data_seg, byte_count)", inSeg(func(s *Seg) { PutData(s, verbs.SGE{Length: ones}) })},
	{"offsetof(struct mlx5_wqe_data_seg, lkey)", inSeg(func(s *Seg) { PutData(s, verbs.SGE{LKey: ones}) })},
	{"offsetof(struct mlx5_wqe_data_seg, addr)", inSeg(func(s *Seg) { PutData(s, verbs.SGE{Addr: 1 << 63}) })},
	{"sizeof(struct mlx5_wqe_inl_data_seg)", InlineHdrLen},
	{"sizeof(struct mlx5_wqe_srq_next_seg)", SRQNextLen},
	{"offsetof(struct mlx5_wqe_srq_next_seg, next_wqe_index)", inSeg(func(s *Seg) { PutSRQNext(s, 0xffff) })},
	{"sizeof(struct mlx5_wqe_datagram_seg)", AVLen},
	{"offsetof(struct mlx5_wqe_av, key)", inAV(AV{QKey: ones})},
	{"offsetof(struct mlx5_wqe_av, dqp_dct)+1", inAV(AV{QPN: qpnMask})},
	{"offsetof(struct mlx5_wqe_av, stat_rate_sl)", inAV(AV{RateSL: 0xff})},
	{"offsetof(struct mlx5_wqe_av, fl_mlid)", inAV(AV{Path: 0x7f})},
	{"offsetof(struct mlx5_wqe_av, rlid)", inAV(AV{DLID: 0xffff})},
	{"offsetof(struct mlx5_wqe_av, rmac)", inAV(AV{MAC: [6]byte{1}})},
	{"offsetof(struct mlx5_wqe_av, tclass)", inAV(AV{TrafficClass: 1})},
	{"offsetof(struct mlx5_wqe_av, hop_limit)", inAV(AV{HopLimit: 1})},
	{"offsetof(struct mlx5_wqe_av, grh_gid_fl)", inAV(AV{GRH: true})},
	{"offsetof(struct mlx5_wqe_av, rgid)", inAV(AV{DGID: verbs.GID{1}})},

	{"sizeof(struct mlx5_cqe64)", CQELen},
	{"offsetof(struct mlx5_cqe64, ml_path)", inCQE(CQE{Path: 0x7f})},
	{"offsetof(struct mlx5_cqe64, slid)", inCQE(CQE{SLID: 0xffff})},
	{"offsetof(struct mlx5_cqe64, flags_rqpn)", inCQE(CQE{GRH: 3})},
	{"offsetof(struct mlx5_cqe64, srqn_uidx)+1", inCQE(CQE{UserIndex: qpnMask})},
	{"offsetof(struct mlx5_cqe64, imm_inval_pkey)", inCQE(CQE{Imm: ones})},
	{"offsetof(struct mlx5_cqe64, byte_cnt)", inCQE(CQE{ByteCount: ones})},
	{"offsetof(struct mlx5_cqe64, timestamp)", inCQE(CQE{Timestamp: 1 << 63})},
	{"offsetof(struct mlx5_cqe64, sop_drop_qpn)", inCQE(CQE{SendOp: 0xff})},
	{"offsetof(struct mlx5_cqe64, wqe_counter)", inCQE(CQE{WQECounter: 0xffff})},
	{"offsetof(struct mlx5_cqe64, op_own)", inCQE(CQE{Solicited: true})},
	{"sizeof(struct mlx5_err_cqe)", CQELen},
	{"offsetof(struct mlx5_err_cqe, srqn)+1", inCQE(CQE{Opcode: CQEReqErr, UserIndex: qpnMask})},
	{"offsetof(struct mlx5_err_cqe, vendor_err_synd)", inCQE(CQE{Opcode: CQEReqErr, VendorErr: 1})},
	{"offsetof(struct mlx5_err_cqe, syndrome)", inCQE(CQE{Opcode: CQERespErr, Syndrome: 1})},
	{"offsetof(struct mlx5_err_cqe, s_wqe_opcode_qpn)", inCQE(CQE{Opcode: CQEReqErr, SendOp: 1})},
	{"offsetof(struct mlx5_err_cqe, wqe_counter)", inCQE(CQE{Opcode: CQEReqErr, WQECounter: 0xffff})},

	{"MLX5_RCV_DBR", 0},
	{"MLX5_SND_DBR", 1},
	{"MLX5_CQ_DOORBELL", CQArm},
	{"MLX5_CQ_DB_REQ_NOT_SOL", armSolicited},
	{"MLX5_INVALID_LKEY", invalidLKey},
	{"MLX5_EXTENDED_UD_AV", avExtended},
	{"MLX5_INLINE_SEG", inlineBit},
	{"MLX5_WQE_CTRL_CQ_UPDATE", int(CtrlCQUpdate)},
	{"MLX5_WQE_CTRL_SOLICITED", int(CtrlSolicited)},
	{"MLX5_WQE_CTRL_FENCE", int(CtrlFence)},
	{"MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE", int(CtrlInitiatorFence)},
	{"MLX5_CQE_OWNER_MASK", cqeOwnerBit},

	{"MLX5_OPCODE_NOP", int(OpNOP)},
	{"MLX5_OPCODE_SEND_INVAL", int(OpSendInval)},
	{"MLX5_OPCODE_RDMA_WRITE", int(OpRDMAWrite)},
	{"MLX5_OPCODE_RDMA_WRITE_IMM", int(OpRDMAWriteImm)},
	{"MLX5_OPCODE_SEND", int(OpSend)},
	{"MLX5_OPCODE_SEND_IMM", int(OpSendImm)},
	{"MLX5_OPCODE_TSO", int(OpTSO)},
	{"MLX5_OPCODE_RDMA_READ", int(OpRDMARead)},
	{"MLX5_OPCODE_ATOMIC_CS", int(OpAtomicCS)},
	{"MLX5_OPCODE_ATOMIC_FA", int(OpAtomicFA)},
	{"MLX5_OPCODE_ATOMIC_MASKED_CS", int(OpMaskedCS)},
	{"MLX5_OPCODE_ATOMIC_MASKED_FA", int(OpMaskedFA)},
	{"MLX5_OPCODE_LOCAL_INVAL", int(OpLocalInval)},
	{"MLX5_OPCODE_UMR", int(OpUMR)},

	{"MLX5_CQE_REQ", int(CQEReq)},
	{"MLX5_CQE_RESP_WR_IMM", int(CQERespWrImm)},
	{"MLX5_CQE_RESP_SEND", int(CQERespSend)},
	{"MLX5_CQE_RESP_SEND_IMM", int(CQERespSendImm)},
	{"MLX5_CQE_RESP_SEND_INV", int(CQERespSendInv)},
	{"MLX5_CQE_RESIZE_CQ", int(CQEResize)},
	{"MLX5_CQE_REQ_ERR", int(CQEReqErr)},
	{"MLX5_CQE_RESP_ERR", int(CQERespErr)},
	{"MLX5_CQE_INVALID", int(CQEInvalid)},
	{"MLX5_INLINE_SCATTER_32|MLX5_INLINE_SCATTER_64", cqeFormatMask},

	{"MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR", int(SyndromeLocalLength)},
	{"MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR", int(SyndromeLocalQPOp)},
	{"MLX5_CQE_SYNDROME_LOCAL_PROT_ERR", int(SyndromeLocalProt)},
	{"MLX5_CQE_SYNDROME_WR_FLUSH_ERR", int(SyndromeWRFlush)},
	{"MLX5_CQE_SYNDROME_MW_BIND_ERR", int(SyndromeMWBind)},
	{"MLX5_CQE_SYNDROME_BAD_RESP_ERR", int(SyndromeBadResp)},
	{"MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR", int(SyndromeLocalAccess)},
	{"MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR", int(SyndromeRemoteInvalidReq)},
	{"MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR", int(SyndromeRemoteAccess)},
	{"MLX5_CQE_SYNDROME_REMOTE_OP_ERR", int(SyndromeRemoteOp)},
	{"MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR", int(SyndromeRetryExceeded)},
	{"MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR", int(SyndromeRNRExceeded)},
	{"MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR", int(SyndromeRemoteAborted)},
}

var rewrite = flag.Bool("rewrite", false, "write testdata from what the C compiler says")

const (
	layoutFile = "testdata/mlx5dv.txt"
	dvHeader   = "/usr/include/infiniband/mlx5dv.h"
)

// layoutText is a line for each row: expression, tab, value in hex.
func layoutText() string {
	var b strings.Builder
	for _, r := range layout {
		fmt.Fprintf(&b, "%s\t%#x\n", r.c, r.own)
	}
	return b.String()
}

func TestLayout(t *testing.T) {
	want, err := os.ReadFile(layoutFile)
	require.NoError(t, err)
	assert.Equal(t, string(want), layoutText())
}

// TestLayout_Header asks the C compiler.
func TestLayout_Header(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc:", err)
	}
	if _, err := os.Stat(dvHeader); err != nil {
		t.Skip("no mlx5dv.h (Debian: libibverbs-dev):", err)
	}
	var src strings.Builder
	src.WriteString("#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/mlx5dv.h>\nint main(void) {\n")
	for _, r := range layout {
		fmt.Fprintf(&src, "\tprintf(\"%%s\\t%%#lx\\n\", %q, (unsigned long)(unsigned)(%s));\n", r.c, r.c)
	}
	src.WriteString("\treturn 0;\n}\n")
	dir := t.TempDir()
	file, prog := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	require.NoError(t, os.WriteFile(file, []byte(src.String()), 0o600))
	out, err := exec.Command(gcc, "-o", prog, file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	got, err := exec.Command(prog).Output()
	require.NoError(t, err)
	text := strings.ReplaceAll(string(got), "\t0\n", "\t0x0\n") // C prints zero without 0x
	if *rewrite {
		require.NoError(t, os.WriteFile(layoutFile, []byte(text), 0o644))
	}
	assert.Equal(t, text, layoutText())
}
