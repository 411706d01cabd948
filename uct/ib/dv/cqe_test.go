package dv

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/mlx5/provider"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// twins are two devices with the same object numbers, so that completions have the same bytes on
// both. Verbs uses the queues of one, and this package those of the other.
type twins struct{ over, direct *bench }

func newTwins(t require.TestingT, cleanup func(func()), typ verbs.QPType) twins {
	w := twins{over: newBench(t, cleanup, typ, rcLimits), direct: newBench(t, cleanup, typ, rcLimits)}
	require.Equal(t, w.over.qp.Number(), w.direct.qp.Number())
	require.Equal(t, w.over.hw.qps[w.over.qp.Number()].UserIndex, w.direct.hw.qps[w.direct.qp.Number()].UserIndex)
	return w
}

// cqe writes an entry to both, as a device does.
func (w twins) cqe(t require.TestingT, i uint32, body []byte) {
	for _, b := range []*bench{w.over, w.direct} {
		view := b.cqes(t)
		s := slotBytes(view.Slot(i))
		copy(s, body)
		s[63] = s[63]&^1 | view.Owner(i)
	}
}

// qpIndex returns the user index of completions of the QP, including its receives from the SRQ.
func (w twins) qpIndex() uint32 { return w.over.hw.qps[w.over.qp.Number()].UserIndex }

// requireSame compares a completion of this package with that of verbs. It compares what the cores
// use: ID and status of a failure; ID of a send; also the length of a message, with RC the
// immediate, and with UD the sender.
func requireSame(t require.TestingT, typ verbs.QPType, over, direct verbs.WC) {
	require.Equal(t, over.ID, direct.ID)
	require.Equal(t, over.QPN, direct.QPN)
	require.Equal(t, over.Status, direct.Status)
	require.Equal(t, over.VendorErr, direct.VendorErr)
	if over.Status != verbs.WCSuccess || over.Opcode < verbs.WCRecv {
		return
	}
	require.Equal(t, over.ByteLen, direct.ByteLen)
	if typ == verbs.QPTypeUD {
		require.Equal(t, over.SrcQP, direct.SrcQP)
		return
	}
	require.Equal(t, over.Opcode == verbs.WCRecvRDMAWithImm, direct.Opcode == verbs.WCRecvRDMAWithImm)
	require.Equal(t, over.Flags&verbs.WCWithImm, direct.Flags)
	require.Equal(t, over.Imm, direct.Imm)
}

// newRawIface makes an rc_mlx5 iface with one EP on a bench. It can only poll.
func newRawIface(t require.TestingT, b *bench) (*rcIface, *rcEP) {
	e := newRawEP(b)
	it := e.it
	require.NoError(t, it.cq.open(b.cq))
	_, err := openList(&it.srq, b.srq, true)
	require.NoError(t, err)
	it.clearRecent()
	e.QPN = b.qp.Number()
	it.recent[uint8(e.QPN)] = e
	return it, e
}

// pollOne handles an entry like Progress. ok is false if the entry has no completion.
func (it *rcIface) pollOne(t require.TestingT) (wc verbs.WC, ok bool) {
	s, tail := it.cq.Peek()
	require.True(t, it.cq.Owned(tail))
	it.cq.Take()
	if !it.cq.Sent(tail) && tail.Opcode() != prm.CQEReq {
		if tail.Opcode() == prm.CQEReqErr {
			return wc, it.sendError(s, tail, &wc)
		}
		return wc, recvCompletion(&it.srq, s, tail, &wc)
	}
	e := it.find(s.QPN())
	require.NotNil(t, e)
	return verbs.WC{QPN: s.QPN(), ID: *e.sq.id(uint32(tail.WQECounter()))}, true
}

// TestGolden_CQE: the bytes of three completions have the same meaning here, in verbs and in
// libmlx5, and the consumer index is written as in libmlx5.
func TestGolden_CQE(t *testing.T) {
	w := newTwins(t, t.Cleanup, verbs.QPTypeRC)
	it, e := newRawIface(t, w.direct)
	write := verbs.SendWR{Opcode: verbs.OpRDMAWrite, Flags: verbs.SendInline, Inline: pattern(8)}
	for id := uint64(40); id < 42; id++ {
		write.ID = id
		for _, post := range []func([]verbs.SendWR) (int, error){w.over.qp.PostSend, e.sq.PostSend} {
			_, err := post([]verbs.SendWR{write})
			require.NoError(t, err)
		}
	}
	receive := []verbs.RecvWR{{ID: 50, SGList: []verbs.SGE{{Addr: 1, Length: 100, LKey: 1}}}}
	for _, post := range []func([]verbs.RecvWR) (int, error){w.over.srq.PostRecv, it.srq.PostRecv} {
		_, err := post(receive)
		require.NoError(t, err)
	}
	for i, g := range []struct {
		words string
		index uint32
		want  verbs.WC
	}{
		{"0 0 0 0 · 0 0 0 0 · 0 0 0 0 · 0 0 08000100 00000000", w.qpIndex(),
			verbs.WC{ID: 40, QPN: 0x100}},
		{"0 0 0 0 · 0 0 10000077 0 · 0 deadbeef 0 0000004d · 0 0 00000100 00000032", w.qpIndex(),
			verbs.WC{ID: 50, QPN: 0x100, ByteLen: 77, Imm: 0xdeadbeef, Flags: verbs.WCWithImm}},
		{"0 0 0 0 · 0 0 0 0 · 0 0 0 0 · 0 00008115 08000100 000100d0", w.qpIndex(),
			verbs.WC{ID: 41, QPN: 0x100, Status: verbs.WCRetryExcErr, VendorErr: 0x81}},
	} {
		body := words(t, g.words)
		binary.BigEndian.PutUint32(body[32:], g.index)
		w.cqe(t, uint32(i), body)
		got, ok := it.pollOne(t)
		require.True(t, ok)
		assert.Equal(t, g.want, got)
		var over [2]verbs.WC
		require.Equal(t, 1, w.over.cq.Poll(over[:]))
		requireSame(t, verbs.QPTypeRC, over[0], got)
	}
	it.cq.Give()
	raw, err := provider.RawCQOf(w.over.cq)
	require.NoError(t, err)
	assert.EqualValues(t, 3, raw.DBRec.CI())
	direct, err := provider.RawCQOf(w.direct.cq)
	require.NoError(t, err)
	assert.EqualValues(t, 3, direct.DBRec.CI())
}

// drawCQE draws an entry with any opcode, including invalid ones, and any values that a device can
// write.
func drawCQE(t *rapid.T, qpn, index uint32, recvCounter uint16) *prm.CQESlot {
	e := prm.CQE{
		Opcode:    prm.CQEOpcode(rapid.ByteRange(0, 14).Draw(t, "opcode")),
		Solicited: rapid.Bool().Draw(t, "solicited"),
		QPN:       qpn, UserIndex: index, WQECounter: rapid.Uint16().Draw(t, "counter"),
		SendOp:    rapid.SampledFrom([]prm.Opcode{prm.OpRDMAWrite, prm.OpSend, prm.OpSendImm, prm.OpRDMARead, prm.OpAtomicFA}).Draw(t, "sent"),
		ByteCount: rapid.Uint32().Draw(t, "bytes"), Imm: rapid.Uint32().Draw(t, "imm"),
		SrcQP: rapid.Uint32Range(0, 1<<24-1).Draw(t, "src"), SL: rapid.ByteRange(0, 15).Draw(t, "sl"), GRH: rapid.ByteRange(0, 3).Draw(t, "grh"),
		Syndrome: prm.Syndrome(rapid.Byte().Draw(t, "syndrome")), VendorErr: rapid.Byte().Draw(t, "vendor"),
	}
	switch e.Opcode {
	case prm.CQEReq, prm.CQEReqErr:
	default:
		e.WQECounter = recvCounter
	}
	s := &prm.CQESlot{}
	s.Write(&e, 0)
	return s
}

// recvIDs is the first ID of receives in these tests.
const recvIDs = 1 << 32

// receives posts receives to verbs and this package, and records which are outstanding.
type receives struct {
	post    [2]func([]verbs.RecvWR) (int, error)
	waiting []uint16 // entries, oldest first
}

// postTo posts a receive, if there is room, to the given entry.
func (r *receives) postTo(t require.TestingT, id uint64, entry uint16) {
	wr := []verbs.RecvWR{{ID: recvIDs + id, SGList: []verbs.SGE{{Addr: 1, Length: 8, LKey: 1}}}}
	n, errOver := r.post[0](wr)
	got, err := r.post[1](wr)
	require.Equal(t, n, got)
	require.Equal(t, errOver, err)
	if n == 1 {
		r.waiting = append(r.waiting, entry)
	}
}

// fillRing posts a write for each basic block of the ring, with verbs and this package, and
// completes those of verbs.
func (w twins) fillRing(t require.TestingT, q *sendQueue, op verbs.Opcode, ah [2]*verbs.AH) (cqes uint32) {
	for q.pi < q.mask+1 {
		wr := []verbs.SendWR{{ID: uint64(q.pi), Opcode: op, Flags: verbs.SendInline, Inline: pattern(8), AH: ah[0]}}
		_, err := w.over.qp.PostSend(wr)
		require.NoError(t, err)
		wr[0].AH = ah[1]
		start := q.pi
		_, err = q.PostSend(wr)
		require.NoError(t, err)
		w.over.complete(t, cqes, start)
		cqes++
	}
	return cqes
}

// TestParseRC_LikeVerbs polls the same entries as verbs, several times round the queue. The entry
// after each one is of the previous round and belongs to the device.
func TestParseRC_LikeVerbs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, t.Cleanup, verbs.QPTypeRC)
		it, e := newRawIface(t, w.direct)
		i := w.fillRing(t, &e.sq, verbs.OpRDMAWrite, [2]*verbs.AH{})
		for range i {
			it.cq.Take()
		}
		r := receives{post: [2]func([]verbs.RecvWR) (int, error){w.over.srq.PostRecv, it.srq.PostRecv}}
		for range rapid.IntRange(1, 200).Draw(t, "entries") {
			head, _ := it.srq.Ends()
			r.postTo(t, uint64(i), head)
			s := drawCQE(t, w.over.qp.Number(), w.qpIndex(), r.waiting[0])
			w.cqe(t, i, slotBytes(s))
			i++
			var over [2]verbs.WC
			n := w.over.cq.Poll(over[:])
			got, ok := it.pollOne(t)
			require.Equal(t, n == 1, ok)
			if ok {
				requireSame(t, verbs.QPTypeRC, over[0], got)
				if got.ID >= recvIDs {
					r.waiting = r.waiting[1:]
				}
			}
			_, tail := it.cq.Peek()
			require.False(t, it.cq.Owned(tail) || it.cq.Sent(tail))
		}
	})
}

// TestPollUD_LikeVerbs does the same for ud_mlx5, with several entries for each poll.
func TestPollUD_LikeVerbs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTwins(t, t.Cleanup, verbs.QPTypeUD)
		var ahs [2]*verbs.AH
		for i, b := range []*bench{w.over, w.direct} {
			var err error
			ahs[i], err = b.pd.CreateAH(verbs.AHAttr{Port: 1, Global: true, SGIDIndex: 1, HopLimit: 64})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, ahs[i].Close()) })
		}
		q := &udQueues{}
		send, recv, _, err := q.attach(w.direct.qp, w.direct.cq)
		require.NoError(t, err)
		i := w.fillRing(t, send.(*sendQueue), verbs.OpSend, ahs)
		for range i {
			q.Take()
		}
		rawDirect, err := provider.RawCQOf(w.direct.cq)
		require.NoError(t, err)
		r := receives{post: [2]func([]verbs.RecvWR) (int, error){w.over.qp.PostRecv, recv.PostRecv}}
		for range rapid.IntRange(1, 40).Draw(t, "polls") {
			for range rapid.IntRange(0, 9).Draw(t, "entries") {
				r.postTo(t, uint64(i), 0)
				s := drawCQE(t, w.over.qp.Number(), w.qpIndex(), 0)
				if s.Tail().Opcode() == prm.CQERespWrImm {
					continue // datagrams have no RDMA
				}
				w.cqe(t, i, slotBytes(s))
				i++
			}
			for n := -1; n != 0; {
				batch := rapid.IntRange(1, 9).Draw(t, "batch")
				over, direct := make([]verbs.WC, batch), make([]verbs.WC, batch)
				n = w.over.cq.Poll(over)
				require.Equal(t, n, q.Poll(direct))
				for k := range over[:n] {
					requireSame(t, verbs.QPTypeUD, over[k], direct[k])
				}
			}
			raw, err := provider.RawCQOf(w.over.cq)
			require.NoError(t, err)
			require.Equal(t, raw.DBRec.CI(), rawDirect.DBRec.CI())
		}
	})
}

// TestPoll_InvalidQPNMatchesNoEP: a completion of a destroyed QP matches no EP, including the one
// of empty cache entries.
func TestPoll_InvalidQPNMatchesNoEP(t *testing.T) {
	b := newBench(t, t.Cleanup, verbs.QPTypeRC, rcLimits)
	it, e := newRawIface(t, b)
	require.NotEqual(t, uint8(invalidQPN&0xff), uint8(e.QPN))
	for _, entry := range it.recent {
		require.NotEqual(t, uint32(invalidQPN), entry.QPN)
	}
}

// TestRecvQueue_LikeVerbs posts and completes receives with verbs and this package, several times
// round the ring and the counter of the doorbell record.
func TestRecvQueue_LikeVerbs(t *testing.T) {
	w := newTwins(t, t.Cleanup, verbs.QPTypeUD)
	var q prm.RecvRing
	require.NoError(t, openRing(&q, w.direct.raw))
	rq := w.over.raw.RQ
	id := uint64(0)
	post := func(n int) {
		wr := make([]verbs.RecvWR, n)
		for i := range wr {
			wr[i] = verbs.RecvWR{ID: id, SGList: []verbs.SGE{{Addr: 0x7f0000001000 + id, Length: 0x80, LKey: 0x1000}}[:min(id, 1)]}
			id++
		}
		got, errOver := w.over.qp.PostRecv(wr)
		n, err := q.PostRecv(wr)
		require.Equal(t, got, n)
		require.Equal(t, errOver, err)
		id -= uint64(len(wr) - n)
		require.Equal(t, bytesOf(rq), bytesOf(w.direct.raw.RQ))
		require.Equal(t, w.over.raw.DBRec.Recv(), w.direct.raw.DBRec.Recv())
	}
	id = 1
	post(1)
	require.Equal(t, words(t, "00000080 00001000 00007f00 00001001 · 0 00000100 0 0"), bytesOf(w.direct.raw.RQ)[:32])
	require.EqualValues(t, 1, w.direct.raw.DBRec.Recv())
	cqes, completed := uint32(0), uint64(0)
	for id < 1<<16+100 {
		post(int(id%16) + 1)
		for range id % 19 {
			if completed == id-1 {
				break
			}
			completed++
			w.over.cqe(t, cqes, &prm.CQE{Opcode: prm.CQERespSend, UserIndex: w.qpIndex()})
			cqes++
			var wc [1]verbs.WC
			require.Equal(t, 1, w.over.cq.Poll(wc[:]))
			got, ok := q.Take()
			require.True(t, ok)
			require.Equal(t, wc[0].ID, got)
		}
	}
}
