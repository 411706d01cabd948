package softhca

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/mlx5/prm"
)

// What a peer has filled before an SRQ was closed completes, though the device had not
// seen its notice; what it says afterwards is dropped.
func TestXRCSRQ_CloseTakesNotices(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	q := s.h.xrcSRQs.find(s.xsrq.Number())
	before := q.xrc.cq.pi
	_, next := splitClaim(q.xrc.window.claim.Load())
	notice := packet{op: pktFilled, flags: flagXRC, dstQPN: s.qps[xrcTarget].v.Number(), srcQPN: s.qps[xrcTarget].remote,
		ext: q.srqn, raddr: uint64(next), dmaLen: 8}
	q.xrc.window.claim.Store(claimed(0, next+1))
	require.True(t, s.peers[0].request(notice, nil))
	require.NoError(t, s.xsrq.Close())
	assert.Equal(t, before+1, q.xrc.cq.pi)
	settled(s.h)
	assert.Equal(t, before+1, q.xrc.cq.pi)
	assert.Equal(t, verbs.QPStateRTS, s.qps[xrcTarget].v.State())
}

// A claim of a device that is gone is passed on: to the same receive, or to the next if its
// notice has come.
func TestXRCSRQ_ClaimOfTheDead(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	q := s.h.xrcSRQs.find(s.xsrq.Number())
	gid := gidWords(s.peers[0].gid)
	c := q.xrc.window.claim
	c.Store(claimed(claimID(gid), 0))
	s.h.settleClaims(gidWords(s.peers[1].gid))
	assert.Equal(t, claimed(claimID(gid), 0), c.Load(), "of another device")
	s.h.settleClaims(gid)
	assert.Equal(t, claimed(0, 0), c.Load())
	c.Store(claimed(claimID(gid), 0))
	_, ok := q.takeFilled(0, 8, claimID(gid))
	require.True(t, ok)
	s.h.settleClaims(gid)
	assert.Equal(t, claimed(0, 1), c.Load())
}

// While a receive is claimed a message over the ring waits, and is told that it need not
// count that.
func TestXRCSRQ_Claimed(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	q := s.h.xrcSRQs.find(s.xsrq.Number())
	q.xrc.window.claim.Store(claimed(5, 0))
	pkt, payload := s.next(xrcTarget, pktSend, flagOnly|flagXRC, 8, 8)
	pkt.ext = q.srqn
	require.True(t, s.peers[0].request(pkt, payload))
	settled(s.h)
	var answers []packet
	s.peers[0].drain(func(p *packet) { answers = append(answers, *p) })
	require.Len(t, answers, 1)
	assert.Equal(t, [2]uint8{pktRNR, rnrBusy}, [2]uint8{answers[0].op, answers[0].status})
}

// What a peer shows as a receive, whatever it is, leads to no more bytes than it says.
func TestRecvShown_Any(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := recvShown{nsge: rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 4)).Draw(t, "nsge")}
		total := uint64(0)
		for i := range d.sge {
			d.sge[i] = verbs.SGE{Addr: rapid.Uint64().Draw(t, "addr"), Length: rapid.Uint32().Draw(t, "length")}
			if uint32(i) < d.nsge {
				total += uint64(d.sge[i].Length)
			}
		}
		n := rapid.Uint64().Draw(t, "n")
		if d.nsge > shownSGEs {
			assert.False(t, d.takes(n))
			return
		}
		assert.Equal(t, n <= total, d.takes(n))
		off := rapid.Uint64().Draw(t, "off")
		_, _, left := d.at(off)
		if off >= total {
			assert.Zero(t, left)
		} else {
			assert.Positive(t, left)
			assert.LessOrEqual(t, left, total-off)
		}
	})
}

// A send that waits for a receive, without a limit, waits for no time and has nobody look.
func TestXRC_WaitIsIdle(t *testing.T) {
	h := openStill(t)
	mem := newXRCRings(t)
	xrcdn, err := h.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	require.NoError(t, err)
	cqn, err := h.CreateCQ(prm.CQParams{Buf: mem.at(0), Count: 16, DBRec: prm.NewDBRec(mem.at(4096))})
	require.NoError(t, err)
	handle, srqn, err := h.CreateXRCSRQ(prm.SRQParams{PDN: 1, Buf: mem.at(1024), Count: 8, Stride: 5,
		DBRec: prm.NewDBRec(mem.at(4104)), MaxSGE: 1, XRCDN: xrcdn, CQN: cqn, UserIndex: 1})
	require.NoError(t, err)
	targetQPN, err := h.CreateTarget(xrcdn)
	require.NoError(t, err)
	qpn, err := h.CreateQP(prm.QPParams{Type: verbs.QPTypeXRCSend, PDN: 1, SendCQN: cqn, SQ: mem.at(2048), SQCount: 8,
		DBRec: prm.NewDBRec(mem.at(4112)), UserIndex: 2})
	require.NoError(t, err)
	up := func(qpn, dest uint32) {
		attr := verbs.QPAttr{State: verbs.QPStateRTR, DestQPN: dest, AH: verbs.AHAttr{DGID: h.gid}, PathMTU: verbs.MTU4096,
			RNRRetry: rnrForever, Timeout: 14, RetryCnt: 7}
		require.NoError(t, h.ModifyQP(qpn, &attr, 1<<21-1))
		attr.State = verbs.QPStateRTS
		require.NoError(t, h.ModifyQP(qpn, &attr, verbs.QPMaskState))
	}
	up(targetQPN, qpn)
	up(qpn, targetQPN)

	view, err := prm.NewSQView(mem.at(2048), 8, qpn, verbs.QPTypeXRCSend)
	require.NoError(t, err)
	ring := prm.NewSendRing(view, verbs.QPCap{MaxInline: 64}, false)
	require.NotZero(t, ring.Encode(0, &verbs.SendWR{Opcode: verbs.OpSend, SRQN: srqn, Flags: verbs.SendInline, Inline: []byte{1}}, nil))
	prm.NewDBRec(mem.at(4112)).StoreSend(1)
	h.qps.find(qpn).kick()
	settled(h)
	assert.Zero(t, h.nextTimer(), "a timer runs")
	assert.Zero(t, h.ctl.attention.Load()&attnTimer)
	assert.Len(t, (*h.outbound.Load())[0].starved, 1)

	// A receive too small, so that the message ends without a region.
	prm.EncodeRecv(unsafe.Slice((*prm.Seg)(mem.at(1024+16)), 1), nil)
	prm.NewDBRec(mem.at(4104)).StoreRecv(1)
	h.RecvDoorbell(handle).Posted()
	settled(h)
	assert.Equal(t, verbs.QPStateErr, verbs.QPState(h.qps.find(qpn).state.Load()))
	for _, n := range []uint32{qpn, targetQPN} {
		require.NoError(t, h.DestroyQP(n))
	}
	require.NoError(t, h.DestroySRQ(handle))
	require.NoError(t, h.DestroyCQ(cqn))
	require.NoError(t, h.CloseXRCD(xrcdn))
}

// xrcRings is memory for queues.
type xrcRings struct{ base unsafe.Pointer }

func newXRCRings(t testing.TB) xrcRings {
	b := make([]byte, 8192+64)
	p := unsafe.Pointer(unsafe.SliceData(b))
	t.Cleanup(func() { clear(b) })
	return xrcRings{unsafe.Add(p, 64-uintptr(p)%64)}
}

func (m xrcRings) at(off int) unsafe.Pointer { return unsafe.Add(m.base, off) }

// An SRQ does not close while a peer is at one of its receives, and says whose process
// that is; it closes when the peer has left.
func TestXRCSRQ_CloseWaitsForVisits(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	m := s.peers[0].toDevice
	m.header().guardsUsed.Store(1)
	defer m.header().guardsUsed.Store(0)
	seq := m.guard(0).enterQueue(s.xsrq.Number(), 0)
	var inUse *ucs.InUseError
	require.ErrorAs(t, s.xsrq.Close(), &inUse)
	assert.Len(t, inUse.PIDs, 1)
	m.guard(0).leave(seq)
	require.NoError(t, s.xsrq.Close())
}
