package provider

import (
	"encoding/binary"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

// rig is an open context on a fakeHW.
type rig struct {
	t    testing.TB
	hw   *fakeHW
	prov *provider
	ctx  *verbs.Context
	pd   *verbs.PD
}

func newRig(t testing.TB, cfg mlx5.Config) *rig {
	t.Helper()
	r := &rig{t: t, hw: newFakeHW()}
	dev := verbs.NewDevice("fake0", func() (verbs.Provider, error) {
		p, err := New(r.hw, cfg)
		r.prov, _ = p.(*provider)
		return p, err
	})
	var err error
	r.ctx, err = dev.Open()
	require.NoError(t, err)
	r.pd, err = r.ctx.AllocPD()
	require.NoError(t, err)
	// Runs last: what tests forgot to close shows as ErrBusy.
	t.Cleanup(func() {
		require.NoError(t, r.pd.Close())
		require.NoError(t, r.ctx.Close())
		require.True(t, r.hw.closed)
	})
	return r
}

func (r *rig) cq(attr verbs.CQInitAttr) *verbs.CQ {
	r.t.Helper()
	if attr.Depth == 0 {
		attr.Depth = 64
	}
	cq, err := r.ctx.CreateCQ(attr)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, cq.Close()) })
	return cq
}

// closedQP makes a QP whose Close the test calls.
func (r *rig) closedQP(attr verbs.QPInitAttr) *verbs.QP {
	r.t.Helper()
	if attr.SendCQ == nil {
		attr.SendCQ = r.cq(verbs.CQInitAttr{})
	}
	if attr.RecvCQ == nil {
		attr.RecvCQ = attr.SendCQ
	}
	if attr.Type == 0 {
		attr.Type = verbs.QPTypeRC
	}
	if attr.Cap == (verbs.QPCap{}) {
		attr.Cap = verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}
	}
	qp, err := r.pd.CreateQP(attr)
	require.NoError(r.t, err)
	toRTS(r.t, qp)
	return qp
}

func (r *rig) qp(attr verbs.QPInitAttr) *verbs.QP {
	r.t.Helper()
	qp := r.closedQP(attr)
	r.t.Cleanup(func() { require.NoError(r.t, qp.Close()) })
	return qp
}

// fake is the device's half of a QP.
func (r *rig) fake(qp *verbs.QP) *fakeQP { return r.hw.qps[qp.Number()] }

func (r *rig) ah() *verbs.AH {
	r.t.Helper()
	ah, err := r.pd.CreateAH(verbs.AHAttr{Port: 1, Global: true, SGIDIndex: 1, HopLimit: 64, DGID: verbs.GID{0xfe, 0x80, 15: 0xaa}})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, ah.Close()) })
	return ah
}

// toRTS takes a QP from RESET to RTS.
func toRTS(t testing.TB, qp *verbs.QP) {
	t.Helper()
	const st = verbs.QPMaskState
	if qp.Type() == verbs.QPTypeUD {
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskQKey))
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, st))
		require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, st|verbs.QPMaskSQPSN))
		return
	}
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, st|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskAccessFlags))
	require.NoError(t, qp.Modify(
		verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096, DestQPN: 0x77, AH: verbs.AHAttr{Port: 1, Global: true}},
		st|verbs.QPMaskAV|verbs.QPMaskPathMTU|verbs.QPMaskDestQPN|verbs.QPMaskRQPSN|verbs.QPMaskMaxDestRD|verbs.QPMaskMinRNRTimer))
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS},
		st|verbs.QPMaskSQPSN|verbs.QPMaskTimeout|verbs.QPMaskRetryCnt|verbs.QPMaskRNRRetry|verbs.QPMaskMaxRDAtomic))
}

// post posts wr and requires that all of it went.
func post(t testing.TB, qp *verbs.QP, wr ...verbs.SendWR) {
	t.Helper()
	n, err := qp.PostSend(wr)
	require.NoError(t, err)
	require.Equal(t, len(wr), n)
}

func inlineWrite(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled | verbs.SendInline,
		Inline: pattern(n), RemoteAddr: 0x1122334455667788, RKey: 0xabcdef01}
}

// poll polls once for at most n.
func poll(t testing.TB, cq *verbs.CQ, n int) []verbs.WC {
	t.Helper()
	wc := make([]verbs.WC, n)
	got := cq.Poll(wc)
	require.GreaterOrEqual(t, got, 0)
	return wc[:got]
}

// pattern is n bytes that tell places apart.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(7 * i)
	}
	return b
}

// words parses 32-bit words in hex, in memory order; dots are for the reader.
func words(t testing.TB, s string) (out []byte) {
	t.Helper()
	for f := range strings.FieldsSeq(strings.ReplaceAll(s, "·", "")) {
		w, err := strconv.ParseUint(f, 16, 32)
		require.NoError(t, err, f)
		out = binary.BigEndian.AppendUint32(out, uint32(w))
	}
	return out
}

// segs are the units that b consists of.
func segs(b []byte) []prm.Seg {
	var out []prm.Seg
	for ; len(b) > 0; b = b[prm.SegLen:] {
		out = append(out, prm.Seg(b))
	}
	return out
}
