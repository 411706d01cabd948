package provider

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/testenv"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestPoll_BatchesAndConsumerIndex(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{Depth: 8})
	qp := r.qp(verbs.QPInitAttr{SendCQ: cq})
	c := cq.Provider().(*compQueue)
	assert.Zero(t, cq.Poll(nil))
	for i := range 7 {
		post(t, qp, inlineWrite(uint64(i), 8))
	}
	assert.Len(t, poll(t, cq, 3), 3)
	assert.Equal(t, uint32(3), c.dbrec.CI())
	wc := poll(t, cq, 8)
	require.Len(t, wc, 4)
	assert.Equal(t, uint64(3), wc[0].ID)
	assert.Equal(t, uint32(7), c.dbrec.CI())
	assert.Empty(t, poll(t, cq, 8))
}

func TestPoll_EverySyndrome(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{})
	for s := range 256 {
		if s == 0 {
			continue
		}
		r.hw.fail = func(*prm.WQE) prm.Syndrome { return prm.Syndrome(s) }
		post(t, qp, verbs.SendWR{ID: uint64(s), Opcode: verbs.OpSend}) // errors complete also when unsignaled
		wc := poll(t, qp.SendCQ(), 2)
		require.Len(t, wc, 1)
		assert.Equal(t, verbs.WC{ID: uint64(s), Status: prm.Syndrome(s).Status(), VendorErr: 0x77, QPN: qp.Number()}, wc[0])
	}
}

// A CQE that stands for nothing of ours is dropped, whatever it holds.
func TestPoll_ForeignCQE(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{Depth: 8})
	qp := r.qp(verbs.QPInitAttr{SendCQ: cq, Cap: verbs.QPCap{MaxSendWR: 4}})
	f := r.fake(qp)
	for _, e := range []prm.CQE{
		{Opcode: prm.CQEReq, UserIndex: 0xabcdef},
		{Opcode: prm.CQEReqErr, UserIndex: 0xabcdef},
		{Opcode: prm.CQERespSend, UserIndex: 0xabcdef},
		{Opcode: prm.CQERespErr, UserIndex: f.uidx}, // a QP without receive queue
		{Opcode: prm.CQERespSend, UserIndex: f.uidx},
		{Opcode: prm.CQEResize, UserIndex: f.uidx},
	} {
		f.send.push(&e)
		assert.Empty(t, poll(t, cq, 2), "%+v", e)
	}
	post(t, qp, inlineWrite(9, 8))
	assert.Len(t, poll(t, cq, 2), 1)
}

// Any 64 bytes as a CQE are survived, and what follows is parsed.
func TestPoll_AnyCQE(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{Depth: 16})
	srq, err := r.pd.CreateSRQ(verbs.SRQInitAttr{MaxWR: 7, MaxSGE: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srq.Close()) })
	qp, qp2 := r.qp(verbs.QPInitAttr{SendCQ: cq}), r.qp(verbs.QPInitAttr{SendCQ: cq, SRQ: srq})
	f, f2 := r.fake(qp), r.fake(qp2)
	c := cq.Provider().(*compQueue)
	rapid.Check(t, func(t *rapid.T) {
		e := prm.CQE{Opcode: prm.CQEOpcode(rapid.ByteRange(0, 14).Draw(t, "op")), WQECounter: rapid.Uint16().Draw(t, "counter"),
			UserIndex: rapid.SampledFrom([]uint32{f.uidx, f2.uidx, 0, uint32(1<<24 - 1)}).Draw(t, "uidx"),
			SendOp:    prm.Opcode(rapid.Byte().Draw(t, "sop")), QPN: rapid.Uint32Range(0, 1<<24-1).Draw(t, "qpn")}
		f.send.push(&e)
		var wc [2]verbs.WC
		require.GreaterOrEqual(t, cq.Poll(wc[:]), 0)
		require.Equal(t, f.send.pi, c.cqes.CI(), "consumed")
	})
}

func TestPoll_DrivesTheDevice(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{})
	poll(t, cq, 1)
	assert.Zero(t, r.hw.drives, "the attention word is down")
	r.hw.attention.Store(1)
	poll(t, cq, 1)
	poll(t, cq, 1)
	assert.Equal(t, 1, r.hw.drives)
}

func TestPoll_Overrun(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{Depth: 4})
	qp := r.qp(verbs.QPInitAttr{SendCQ: cq})
	post(t, qp, inlineWrite(1, 8))
	r.hw.sink.AsyncEvent(verbs.EventCQErr, cq.Provider().(*compQueue).cqn)
	assert.Len(t, poll(t, cq, 4), 1, "what it still holds comes first")
	var wc [1]verbs.WC
	assert.Equal(t, -1, cq.Poll(wc[:]))
	ev, err := r.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: cq}, ev)
}

// Completions of a QP that is gone are removed, those of others stay in order.
func TestClose_RemovesCompletions(t *testing.T) {
	for start := range 6 { // also where the ring wraps
		r := newRig(t, mlx5.Config{})
		cq := r.cq(verbs.CQInitAttr{Depth: 8})
		a, b := r.closedQP(verbs.QPInitAttr{SendCQ: cq}), r.qp(verbs.QPInitAttr{SendCQ: cq})
		for range start {
			post(t, b, inlineWrite(0, 8))
			poll(t, cq, 1)
		}
		for i := range uint64(3) {
			post(t, a, inlineWrite(100+i, 8))
			post(t, b, inlineWrite(200+i, 8))
		}
		require.NoError(t, a.Close())
		wc := poll(t, cq, 8)
		require.Len(t, wc, 3)
		for i := range wc {
			assert.Equal(t, uint64(200+i), wc[i].ID)
			assert.Equal(t, b.Number(), wc[i].QPN)
		}
		post(t, b, inlineWrite(7, 8))
		assert.Len(t, poll(t, cq, 8), 1, "the ring goes on")
	}
}

// What a destroyed QP had is given to the next one, and nothing of the old shows.
func TestClose_NumbersAreUsedAgain(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	cq := r.cq(verbs.CQInitAttr{Depth: 8})
	for i := range uint64(20) {
		qp := r.closedQP(verbs.QPInitAttr{SendCQ: cq})
		assert.Equal(t, uint32(firstUserIndex), r.fake(qp).uidx)
		assert.Equal(t, 1, r.prov.Resources().UUARsUsed)
		post(t, qp, inlineWrite(i, 8))
		wc := poll(t, cq, 2)
		require.Len(t, wc, 1)
		assert.Equal(t, i, wc[0].ID)
		assert.Equal(t, qp.Number(), wc[0].QPN)
		require.NoError(t, qp.Close())
	}
	assert.Zero(t, r.prov.Resources().UUARsUsed)
}

// A move to RESET empties all queues of the QP; it then works from the start.
func TestModify_Reset(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{})
	post(t, qp, inlineWrite(1, 8))
	n, err := qp.PostRecv(make([]verbs.RecvWR, 16))
	require.NoError(t, err)
	require.Equal(t, 16, n)
	require.NoError(t, qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
	assert.Empty(t, poll(t, qp.SendCQ(), 4))
	toRTS(t, qp)
	n, err = qp.PostRecv(make([]verbs.RecvWR, 16))
	require.NoError(t, err)
	assert.Equal(t, 16, n, "empty again")
	post(t, qp, inlineWrite(2, 8))
	assert.Equal(t, uint64(2), poll(t, qp.SendCQ(), 4)[0].ID)
}

func TestRecv_OrderAndFields(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{})
	f := r.fake(qp)
	wr := []verbs.RecvWR{{ID: 1, SGList: []verbs.SGE{{Addr: 0x10, Length: 64, LKey: 9}}}, {ID: 2}, {ID: 3}, {ID: 4}}
	n, err := qp.PostRecv(wr)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	assert.Equal(t, uint16(4), f.dbrec.Recv())

	r.hw.arrive(t, f, prm.CQE{Opcode: prm.CQERespSend, ByteCount: 10})
	r.hw.arrive(t, f, prm.CQE{Opcode: prm.CQERespSendImm, ByteCount: 77, Imm: 0xdeadbeef, SrcQP: 0x77, GRH: 1})
	r.hw.arrive(t, f, prm.CQE{Opcode: prm.CQERespWrImm, ByteCount: 5, Imm: 6})
	r.hw.arrive(t, f, prm.CQE{Opcode: prm.CQERespErr, Syndrome: prm.SyndromeLocalLength, VendorErr: 3})
	assert.Equal(t, []verbs.WC{
		{ID: 1, Opcode: verbs.WCRecv, ByteLen: 10, QPN: qp.Number()},
		{ID: 2, Opcode: verbs.WCRecv, ByteLen: 77, Imm: 0xdeadbeef, Flags: verbs.WCWithImm | verbs.WCGRH, SrcQP: 0x77, QPN: qp.Number()},
		{ID: 3, Opcode: verbs.WCRecvRDMAWithImm, ByteLen: 5, Imm: 6, Flags: verbs.WCWithImm, QPN: qp.Number()},
		{ID: 4, Opcode: verbs.WCRecv, Status: verbs.WCLocLenErr, VendorErr: 3, QPN: qp.Number()},
	}, poll(t, qp.RecvCQ(), 8))
}

func TestPostRecv_FullAndRefused(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 4, MaxRecvSGE: 2}})
	n, err := qp.PostRecv(make([]verbs.RecvWR, 6))
	assert.Equal(t, 4, n)
	assert.True(t, err == ucs.ErrNoResource)
	r.hw.arrive(t, r.fake(qp), prm.CQE{Opcode: prm.CQERespSend})
	poll(t, qp.RecvCQ(), 1)

	n, err = qp.PostRecv([]verbs.RecvWR{{ID: 1, SGList: make([]verbs.SGE, 3)}})
	assert.Zero(t, n)
	assert.ErrorIs(t, err, ucs.ErrInvalidParam)
	_, err = qp.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{{Length: 1 << 31}}}})
	assert.ErrorIs(t, err, ucs.ErrTooLong)
	n, err = qp.PostRecv([]verbs.RecvWR{{ID: 2}, {ID: 3}})
	assert.Equal(t, 1, n)
	assert.True(t, err == ucs.ErrNoResource)
}

func (r *rig) srq(attr verbs.SRQInitAttr) *verbs.SRQ {
	r.t.Helper()
	s, err := r.pd.CreateSRQ(attr)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, s.Close()) })
	return s
}

// Golden: entry 0 with one SGE links to 1; the counter is in the doorbell record.
func TestSRQ_Golden(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	srq := r.srq(verbs.SRQInitAttr{MaxWR: 3, MaxSGE: 2})
	_, err := srq.PostRecv([]verbs.RecvWR{{SGList: []verbs.SGE{{Addr: 0x7f0000001000, Length: 128, LKey: 0x1000}}}})
	require.NoError(t, err)
	s := srq.Provider().(*sharedRecv)
	e := s.list.Entry(0)
	assert.Equal(t, segs(words(t, "00000001 0 0 0 · 00000080 00001000 00007f00 00001000 · 0 00000100 0 0")), e[:3])
	assert.Equal(t, uint16(1), s.dbrec.Recv())
}

// Golden: what consumes an entry of a basic SRQ has the user index of its QP, through
// which the SRQ is found; the entry, which may be any, comes back at the end of the list.
func TestSRQ_CompletionHasUserIndexOfQP(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	srq := r.srq(verbs.SRQInitAttr{MaxWR: 3, MaxSGE: 1})
	cq := r.cq(verbs.CQInitAttr{})
	r.qp(verbs.QPInitAttr{SendCQ: cq})
	qp := r.qp(verbs.QPInitAttr{SendCQ: cq, SRQ: srq})
	for id := range uint64(3) {
		_, err := srq.PostRecv([]verbs.RecvWR{{ID: 50 + id}})
		require.NoError(t, err)
	}
	c, s := cq.Provider().(*compQueue), srq.Provider().(*sharedRecv)
	index := r.fake(qp).uidx
	for i, g := range []struct {
		words string
		want  verbs.WC
	}{
		{"0 0 0 0 · 0 0 10000077 0 · 0 deadbeef 0 0000004d · 0 0 00000101 00010030", verbs.WC{ID: 51,
			Opcode: verbs.WCRecv, ByteLen: 77, Imm: 0xdeadbeef, SrcQP: 0x77, Flags: verbs.WCWithImm | verbs.WCGRH}},
		{"0 0 0 0 · 0 0 0 0 · 0 0 0 0 · 0 00008105 00000101 000000e0", verbs.WC{ID: 50,
			Opcode: verbs.WCRecv, Status: verbs.WCWRFlushErr, VendorErr: 0x81}},
	} {
		b := words(t, g.words)
		binary.BigEndian.PutUint32(b[32:36], index)
		copy(slotBytes(c.cqes.Slot(uint32(i))), b)
		got := poll(t, cq, 2)
		require.Len(t, got, 1)
		g.want.QPN = qp.Number()
		assert.Equal(t, g.want, got[0])
	}
	_, tail := s.list.Ends()
	assert.EqualValues(t, 0, tail)
	assert.EqualValues(t, 1, prm.SRQNext(&s.list.Entry(3)[0]), "3, 1, 0")
	assert.EqualValues(t, 0, prm.SRQNext(&s.list.Entry(1)[0]))
}

// Two QPs take from one SRQ in arrival order; entries come back in completion
// order and the list stays whole.
func TestSRQ_SharedByQPs(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	srq := r.srq(verbs.SRQInitAttr{MaxWR: 3, MaxSGE: 1})
	cqs := []*verbs.CQ{r.cq(verbs.CQInitAttr{}), r.cq(verbs.CQInitAttr{})}
	qps := []*verbs.QP{r.qp(verbs.QPInitAttr{SendCQ: cqs[0], SRQ: srq}), r.qp(verbs.QPInitAttr{SendCQ: cqs[1], SRQ: srq})}
	attr, err := srq.Query()
	require.NoError(t, err)
	require.Equal(t, 3, attr.MaxWR)

	next, id := uint64(0), uint64(0)
	n, err := srq.PostRecv([]verbs.RecvWR{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}})
	require.Equal(t, 3, n)
	require.True(t, err == ucs.ErrNoResource)
	next = 3
	for round := range 200 {
		// The later arrival is polled first.
		r.hw.arrive(t, r.fake(qps[round%2]), prm.CQE{Opcode: prm.CQERespSend})
		r.hw.arrive(t, r.fake(qps[(round+1)%2]), prm.CQE{Opcode: prm.CQERespSend})
		late, early := poll(t, cqs[(round+1)%2], 4), poll(t, cqs[round%2], 4)
		require.Len(t, late, 1)
		require.Len(t, early, 1)
		require.Equal(t, [2]uint64{id, id + 1}, [2]uint64{early[0].ID, late[0].ID}, "receives go out in the order posted")
		require.Equal(t, qps[round%2].Number(), early[0].QPN)
		id += 2
		n, err := srq.PostRecv([]verbs.RecvWR{{ID: next}, {ID: next + 1}, {ID: 99999}})
		require.Equal(t, 2, n)
		require.True(t, err == ucs.ErrNoResource)
		next += 2
	}
}

// Receives that a destroyed QP had taken, and nobody polled, are posted again, with
// their IDs and memory, behind what was posted before.
func TestSRQ_ClosePostsAgain(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	srq := r.srq(verbs.SRQInitAttr{MaxWR: 3, MaxSGE: 1})
	cq := r.cq(verbs.CQInitAttr{})
	b := r.qp(verbs.QPInitAttr{SendCQ: cq, SRQ: srq})
	memory := func(id uint64) verbs.SGE { return verbs.SGE{Addr: 0x1000 * (id + 1), Length: 64, LKey: 7} }
	for id := range uint64(3) {
		_, err := srq.PostRecv([]verbs.RecvWR{{ID: id, SGList: []verbs.SGE{memory(id)}}})
		require.NoError(t, err)
	}
	want := []uint64{0, 1, 2} // in the order posted
	for range 50 {
		a := r.closedQP(verbs.QPInitAttr{SendCQ: cq, SRQ: srq})
		r.hw.arrive(t, r.fake(a), prm.CQE{Opcode: prm.CQERespSend})
		r.hw.arrive(t, r.fake(b), prm.CQE{Opcode: prm.CQERespSend})
		require.NoError(t, a.Close())
		wcs := poll(t, cq, 4)
		require.Len(t, wcs, 1, "of the other")
		require.Equal(t, want[1], wcs[0].ID)
		n, err := srq.PostRecv([]verbs.RecvWR{{ID: wcs[0].ID, SGList: []verbs.SGE{memory(wcs[0].ID)}}, {ID: 99}})
		require.Equal(t, 1, n, "all but that one are posted")
		require.True(t, err == ucs.ErrNoResource)
		want = []uint64{want[2], want[0], want[1]}
		require.Equal(t, memory(want[0]), firstSGE(t, r.hw.srqs[srq.Number()]))
	}
}

// firstSGE is the memory of the receive that the next arrival takes.
func firstSGE(t *testing.T, q *fakeRQ) verbs.SGE {
	t.Helper()
	var list prm.SGList
	n, _, syn := prm.DecodeRecv(q.view.Entry(uint32(q.next))[1:], &list)
	require.Equal(t, prm.SyndromeOK, syn)
	require.Equal(t, 1, n)
	return list[0]
}

func TestSRQ_ModifyAndLimit(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	srq := r.srq(verbs.SRQInitAttr{MaxWR: 7, MaxSGE: 1, Limit: 2})
	f := r.hw.srqs[srq.Number()]
	assert.Equal(t, 2, f.limit)
	require.NoError(t, srq.Modify(verbs.SRQAttr{Limit: 5}, verbs.SRQMaskLimit))
	assert.Equal(t, 5, f.limit)
	assert.ErrorIs(t, srq.Modify(verbs.SRQAttr{Limit: 8}, verbs.SRQMaskLimit), ucs.ErrInvalidParam)
	assert.ErrorIs(t, srq.Modify(verbs.SRQAttr{MaxWR: 8}, verbs.SRQMaskMaxWR), ucs.ErrUnsupported)
	assert.NoError(t, srq.Modify(verbs.SRQAttr{}, 0))

	r.hw.sink.AsyncEvent(verbs.EventSRQLimitReached, srq.Number())
	ev, err := r.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventSRQLimitReached, SRQ: srq}, ev)
}

func (r *rig) channel() *verbs.CompChannel {
	r.t.Helper()
	ch, err := r.ctx.CreateCompChannel()
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, ch.Close()) })
	return ch
}

// The arm word and its doorbell, as libmlx5 writes them.
func TestArm_Golden(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	r.hw.record = true
	ch := r.channel()
	cq := r.cq(verbs.CQInitAttr{Channel: ch})
	c := cq.Provider().(*compQueue)
	qp := r.qp(verbs.QPInitAttr{SendCQ: cq})
	for range 3 {
		post(t, qp, inlineWrite(0, 8))
	}
	poll(t, cq, 8)
	r.hw.rings = nil
	c.cqn = 0x400
	r.hw.cqs[0x400] = r.fake(qp).send
	require.NoError(t, cq.Arm(false))
	assert.Equal(t, uint32(3), c.dbrec.Arm())
	require.Len(t, r.hw.rings, 1)
	assert.Equal(t, uint32(prm.CQArm), r.hw.rings[0].off)
	assert.Equal(t, words(t, "00000003 00000400"), r.hw.rings[0].bytes(8))
	assert.Equal(t, words(t, "00000003 00000400"), r.hw.rings[0].argument())
	require.NoError(t, cq.Arm(true))
	assert.Equal(t, uint32(0x01000003), c.dbrec.Arm())
}

func TestArm_EventOnceAndSerial(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	ch := r.channel()
	cq := r.cq(verbs.CQInitAttr{Channel: ch, Context: "mine"})
	qp := r.qp(verbs.QPInitAttr{SendCQ: cq})
	c := cq.Provider().(*compQueue)
	assert.Nil(t, ch.TryGet())

	post(t, qp, inlineWrite(1, 8))
	poll(t, cq, 4)
	assert.False(t, ch.Pending(), "not armed")

	for round := range uint32(6) {
		require.NoError(t, cq.Arm(false))
		sn, _, _ := prm.SplitArmWord(c.dbrec.Arm())
		assert.Equal(t, round&3, sn, "counts events taken")
		assert.False(t, testenv.Readable(t, ch.FD(), 0))
		post(t, qp, inlineWrite(1, 8), inlineWrite(2, 8))
		assert.True(t, ch.Pending())
		assert.True(t, testenv.Readable(t, ch.FD(), 0))
		assert.Same(t, cq, ch.TryGet())
		assert.Nil(t, ch.TryGet(), "one event for one arm")
		assert.False(t, testenv.Readable(t, ch.FD(), 0))
		assert.Len(t, poll(t, cq, 4), 2)
	}
	assert.Equal(t, "mine", cq.Context())
}

func TestArm_WithoutChannel(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	assert.ErrorIs(t, r.cq(verbs.CQInitAttr{}).Arm(false), ucs.ErrInvalidState)
}

// Events of two CQs come in order; those of a closed CQ are dropped.
func TestChannel_SeveralCQs(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	ch := r.channel()
	a, err := r.ctx.CreateCQ(verbs.CQInitAttr{Depth: 4, Channel: ch})
	require.NoError(t, err)
	b := r.cq(verbs.CQInitAttr{Channel: ch})
	qa, qb := r.closedQP(verbs.QPInitAttr{SendCQ: a}), r.qp(verbs.QPInitAttr{SendCQ: b})
	fire := func(cq *verbs.CQ, qp *verbs.QP) {
		require.NoError(t, cq.Arm(false))
		post(t, qp, inlineWrite(1, 8))
		poll(t, cq, 4)
	}
	fire(b, qb)
	fire(a, qa)
	assert.Same(t, b, ch.TryGet())
	assert.Same(t, a, ch.TryGet())
	fire(a, qa)
	fire(b, qb)
	require.NoError(t, qa.Close())
	require.NoError(t, a.Close())
	assert.Same(t, b, ch.TryGet())
	assert.False(t, ch.Pending())
	assert.False(t, testenv.Readable(t, ch.FD(), 0))
}

func TestEvents_ByObject(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp, gone := r.qp(verbs.QPInitAttr{}), r.closedQP(verbs.QPInitAttr{})
	n := gone.Number()
	r.hw.sink.AsyncEvent(verbs.EventQPFatal, n)
	r.hw.sink.AsyncEvent(verbs.EventQPAccessErr, qp.Number())
	require.NoError(t, gone.Close())
	r.hw.sink.AsyncEvent(verbs.EventQPFatal, n) // too late
	r.hw.sink.AsyncEvent(verbs.EventDeviceFatal, 0)
	for _, want := range []verbs.AsyncEvent{{Type: verbs.EventQPAccessErr, QP: qp}, {Type: verbs.EventDeviceFatal}} {
		ev, err := r.ctx.NextAsyncEvent()
		require.NoError(t, err)
		assert.Equal(t, want, ev)
	}
	assert.Empty(t, r.prov.events.queue)
}

// One event tells of a destination, however many datagrams go there.
func TestEvents_UnreachableOnce(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	qp := r.qp(verbs.QPInitAttr{})
	far, other := verbs.GID{15: 1}, verbs.GID{15: 2}
	for _, gid := range []verbs.GID{far, far, other, far} {
		r.hw.sink.Unreachable(qp.Number(), gid)
	}
	r.hw.sink.Unreachable(qp.Number()+1, far) // of no QP
	for _, gid := range []verbs.GID{far, other} {
		ev, err := r.ctx.NextAsyncEvent()
		require.NoError(t, err)
		assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventUnreachable, QP: qp, GID: gid}, ev)
	}
	assert.Empty(t, r.prov.events.queue)
}

func TestEvents_CloseWakes(t *testing.T) {
	hw := newFakeHW()
	p, err := New(hw, mlx5.Config{})
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		_, err := p.NextAsyncEvent()
		done <- err
	}()
	require.NoError(t, p.Close())
	assert.ErrorIs(t, <-done, ucs.ErrClosed)
	assert.NoError(t, p.Close(), "idempotent")
}

func TestDataPath_DoesNotAllocate(t *testing.T) {
	r := newRig(t, mlx5.Config{})
	ch := r.channel()
	cq := r.cq(verbs.CQInitAttr{Channel: ch})
	srq := r.srq(verbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
	qp, sqp := r.qp(verbs.QPInitAttr{SendCQ: cq}), r.qp(verbs.QPInitAttr{SendCQ: cq, SRQ: srq})
	ud := r.qp(verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: cq})
	ah := r.ah()
	wc := make([]verbs.WC, 4)
	sges := []verbs.SGE{{Addr: 1, Length: 8, LKey: 1}}
	sends := []verbs.SendWR{inlineWrite(1, 8), {Opcode: verbs.OpSend, SGList: sges}, {Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGList: sges}}
	dgram := []verbs.SendWR{{Opcode: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, Inline: pattern(20), AH: ah}}
	recv := []verbs.RecvWR{{SGList: sges}}
	arm := func() {
		_ = cq.Arm(false)
		_, _ = qp.PostSend(sends)
		cq.Poll(wc)
		ch.TryGet()
	}
	arm()
	testenv.NoAllocs(t, "post and poll", func() { _, _ = qp.PostSend(sends); cq.Poll(wc) })
	testenv.NoAllocs(t, "UD", func() { _, _ = ud.PostSend(dgram); cq.Poll(wc) })
	testenv.NoAllocs(t, "receive", func() {
		_, _ = qp.PostRecv(recv)
		r.hw.arrive(t, r.fake(qp), prm.CQE{Opcode: prm.CQERespSend})
		cq.Poll(wc)
	})
	testenv.NoAllocs(t, "SRQ", func() {
		_, _ = srq.PostRecv(recv)
		r.hw.arrive(t, r.fake(sqp), prm.CQE{Opcode: prm.CQERespSend})
		cq.Poll(wc)
	})
	testenv.NoAllocs(t, "event", arm)
	assert.Equal(t, uint32(0), qp.Provider().(*queuePair).sq.head-qp.Provider().(*queuePair).sq.tail, "all of it was posted and retired")

	r.hw.stalled = true
	for err := error(nil); err == nil; {
		_, err = qp.PostSend(sends)
	}
	testenv.NoAllocs(t, "full queue", func() { _, _ = qp.PostSend(sends) })
}
