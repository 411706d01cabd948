package softhca

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/guard"
	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// xrcSieges runs f with a private domain, and with one that other devices can join.
func xrcSieges(t *testing.T, f func(t *testing.T, s *siege)) {
	for name, make := range map[string]func(testing.TB) *siege{"private": newSiege, "shared": newSharedSiege} {
		t.Run(name, func(t *testing.T) {
			s := make(t)
			s.begin(t)
			defer s.end()
			f(t, s)
		})
	}
}

// Receives that a peer has filled before an SRQ is closed complete, although the device has not handled the
// notices yet; later notices are dropped.
func TestXRCSRQ_CloseHandlesPendingNotices(t *testing.T) {
	xrcSieges(t, func(t *testing.T, s *siege) {
		q := s.h.xrcSRQs.find(s.xsrq.Number())
		before := q.xrc.cq.pi
		_, next := table.SplitClaim(q.xrc.window.claim.Load())
		notice := ring.Packet{Op: ring.OpFilled, Flags: ring.FlagXRC, DstQPN: s.qps[xrcTarget].v.Number(), SrcQPN: s.qps[xrcTarget].remote,
			Ext: q.srqn, RAddr: uint64(next), Total: 8}
		q.xrc.window.claim.Store(table.Claimed(0, next+1))
		require.True(t, s.peers[0].request(notice, nil))
		require.NoError(t, s.xsrq.Close())
		assert.Equal(t, before+1, q.xrc.cq.pi)
		driveUntilIdle(s.h)
		assert.Equal(t, before+1, q.xrc.cq.pi)
		assert.Equal(t, verbs.QPStateRTS, s.qps[xrcTarget].v.State())
	})
}

// Receives that a dead peer has filled complete, although the notices are behind a read whose data the peer
// does not consume.
func TestXRCSRQ_NoticesOfDeadPeer(t *testing.T) {
	xrcSieges(t, func(t *testing.T, s *siege) {
		q := s.h.xrcSRQs.find(s.xsrq.Number())
		before := q.xrc.cq.pi
		_, next := table.SplitClaim(q.xrc.window.claim.Load())
		q.xrc.window.claim.Store(table.Claimed(0, next+1))
		p, target := s.peers[0], &s.qps[xrcTarget]
		p.in.reading.qp = target.q
		defer func() { p.in.reading.qp = nil }()
		require.True(t, p.request(ring.Packet{Op: ring.OpFilled, Flags: ring.FlagXRC, DstQPN: target.v.Number(), SrcQPN: target.remote,
			Ext: q.srqn, RAddr: uint64(next), Total: 8}, nil))
		require.True(t, s.h.removeInbound(p.in))
		assert.Equal(t, before+1, q.xrc.cq.pi)
		assert.False(t, q.xrc.window.isShown(next))
	})
}

// The claim of a device that is gone is released: for the same receive, or for the next if there is a
// notice.
func TestXRCSRQ_ClaimOfDeadPeer(t *testing.T) {
	xrcSieges(t, func(t *testing.T, s *siege) {
		q := s.h.xrcSRQs.find(s.xsrq.Number())
		gid := table.GIDWords(s.peers[0].gid)
		c := q.xrc.window.claim
		c.Store(table.Claimed(table.ClaimID(gid), 0))
		s.h.releaseClaims()
		assert.Equal(t, table.Claimed(table.ClaimID(gid), 0), c.Load(), "the peer is alive")
		require.True(t, s.h.removeInbound(s.peers[0].in))
		s.h.releaseClaims()
		assert.Equal(t, table.Claimed(0, 0), c.Load())
		c.Store(table.Claimed(table.ClaimID(gid), 0))
		_, ok := q.retireFilled(0, 8, table.ClaimID(gid))
		require.True(t, ok)
		s.h.releaseClaims()
		assert.Equal(t, table.Claimed(0, 1), c.Load())
	})
}

// Receives that a device has skipped without filling them do not block the queue when the device is gone:
// they are flushed, except those with a notice.
func TestXRCSRQ_SkippedByDeadPeer(t *testing.T) {
	for name, c := range map[string]struct {
		claim   uint64
		flushed int
	}{
		"all":              {table.Claimed(0, 3), 3},
		"one":              {table.Claimed(0, 1), 1},
		"none":             {table.Claimed(0, 0), 0},
		"unknown claimant": {table.Claimed(77, 2), 2},
		"invalid receive":  {table.Claimed(0, 1000), 3},
	} {
		for _, noticed := range []bool{false, true} {
			xrcSieges(t, func(t *testing.T, s *siege) {
				q := s.h.xrcSRQs.find(s.xsrq.Number())
				q.xrc.window.claim.Store(c.claim)
				want := c.flushed
				if noticed && c.flushed > 0 {
					want-- // the test has not driven the device since the notice
					require.True(t, s.peers[1].request(ring.Packet{Op: ring.OpFilled, DstQPN: 77, Ext: q.srqn, Total: 8}, nil))
				}
				s.h.dropInbound(s.peers[0].in)
				s.h.dials.Wait()
				var wcs [8]verbs.WC
				n := s.cq.Poll(wcs[:])
				require.Equal(t, want, n, name)
				for _, wc := range wcs[:n] {
					assert.Equal(t, verbs.WCWRFlushErr, wc.Status)
					assert.Zero(t, wc.QPN)
				}
				s.posts = nil
				for range c.flushed {
					s.postRecv(xrcQueues)
				}
				ok, busy, _ := q.popShown(new(recvEntry))
				assert.True(t, ok && !busy, "the queue does not receive")
			})
		}
	}
}

// When a peer is gone, the device waits only once for another peer that is stopped in the middle of messages
// to several queues. Skipped receives that no peer accesses are flushed.
func TestXRCSRQ_SkippedDuringVisit(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	m := s.peers[0].toDevice
	const visited, all = 3, 4
	m.header().guardsUsed.Store(visited)
	defer m.header().guardsUsed.Store(0)
	var queues []*recvQueue
	for i := range uint32(all) {
		v, err := s.pd.CreateSRQ(verbs.SRQInitAttr{Type: verbs.SRQTypeXRC, XRCD: s.domain, CQ: s.cq, MaxWR: 1, MaxSGE: 1})
		require.NoError(t, err)
		defer func() { require.NoError(t, v.Close()) }()
		_, err = v.PostRecv([]verbs.RecvWR{{ID: 1}})
		require.NoError(t, err)
		q := s.h.xrcSRQs.find(v.Number())
		q.xrc.window.claim.Store(table.Claimed(0, 1))
		queues = append(queues, q)
		if i < visited {
			seq := m.guard(i).enterQueue(q.srqn, 0)
			defer m.guard(i).Leave(seq)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s.h.releaseClaims()
		assert.Less(t, time.Since(began), 2*visitTimeout)
	})
	for i, q := range queues {
		assert.Equal(t, i < visited, q.xrc.window.isShown(0), "queue %d", i)
	}
}

// While a receive is claimed, a message over the ring gets an RNR NAK that does not count as a retry.
func TestXRCSRQ_Claimed(t *testing.T) {
	xrcSieges(t, func(t *testing.T, s *siege) {
		q := s.h.xrcSRQs.find(s.xsrq.Number())
		q.xrc.window.claim.Store(table.Claimed(5, 0))
		pkt, payload := s.next(xrcTarget, ring.OpSend, flagOnly|ring.FlagXRC, 8, 8)
		pkt.Ext = q.srqn
		require.True(t, s.peers[0].request(pkt, payload))
		driveUntilIdle(s.h)
		var answers []ring.Packet
		s.peers[0].drain(func(p *ring.Packet) { answers = append(answers, *p) })
		require.Len(t, answers, 1)
		assert.Equal(t, [2]uint8{ring.OpRNR, ring.RNRBusy}, [2]uint8{answers[0].Op, answers[0].Status})
	})
}

// For an arbitrary published receive of a peer, At returns no more bytes than the receive has.
func TestRecv_ArbitraryContents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := table.Recv{NSGE: rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 4)).Draw(t, "nsge")}
		total := uint64(0)
		for i := range d.SGE {
			d.SGE[i] = verbs.SGE{Addr: rapid.Uint64().Draw(t, "addr"), Length: rapid.Uint32().Draw(t, "length")}
			if uint32(i) < d.NSGE {
				total += uint64(d.SGE[i].Length)
			}
		}
		n := rapid.Uint64().Draw(t, "n")
		if d.NSGE > table.ShownSGEs {
			assert.False(t, d.Takes(n))
			return
		}
		assert.Equal(t, n <= total, d.Takes(n))
		off := rapid.Uint64().Draw(t, "off")
		_, _, left := d.At(off)
		if off >= total {
			assert.Zero(t, left)
		} else {
			assert.Positive(t, left)
			assert.LessOrEqual(t, left, total-off)
		}
	})
}

// xrcPair is an initiator and a target of a device that only the test drives, with an XRC SRQ without
// receives.
type xrcPair struct {
	t      testing.TB
	h      *hca
	mem    xrcRings
	xrcdn  uint32
	cqn    uint32
	handle uint32 // of the SRQ
	srqn   uint32
	from   uint32 // QPN of the initiator
	to     uint32
	posted uint16
}

// Offsets of the rings of an xrcPair.
const (
	pairCQ      = 0
	pairSRQ     = 1024
	pairSQ      = 2048
	pairCQRec   = 4096
	pairSRQRec  = 4104
	pairSendRec = 4112
)

func newXRCPair(t testing.TB) *xrcPair {
	t.Helper()
	h := openUndriven(t)
	p := &xrcPair{t: t, h: h, mem: newXRCRings(t)}
	var err error
	p.xrcdn, err = h.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	require.NoError(t, err)
	p.cqn, err = h.CreateCQ(prm.CQParams{Buf: p.mem.at(pairCQ), Count: 16, DBRec: prm.NewDBRec(p.mem.at(pairCQRec))})
	require.NoError(t, err)
	p.handle, p.srqn, err = h.CreateXRCSRQ(p.srqParams())
	require.NoError(t, err)
	p.to, _, err = h.CreateTarget(p.xrcdn)
	require.NoError(t, err)
	p.from, err = h.CreateQP(prm.QPParams{Type: verbs.QPTypeXRCSend, PDN: 1, SendCQN: p.cqn, SQ: p.mem.at(pairSQ), SQCount: 8,
		DBRec: prm.NewDBRec(p.mem.at(pairSendRec)), UserIndex: 2})
	require.NoError(t, err)
	p.up(p.to, p.from)
	p.up(p.from, p.to)
	return p
}

func (p *xrcPair) srqParams() prm.SRQParams {
	return prm.SRQParams{PDN: 1, Buf: p.mem.at(pairSRQ), Count: 8, Stride: 5,
		DBRec: prm.NewDBRec(p.mem.at(pairSRQRec)), MaxSGE: 1, XRCDN: p.xrcdn, CQN: p.cqn, UserIndex: 1}
}

func (p *xrcPair) up(qpn, dest uint32) {
	p.t.Helper()
	attr := verbs.QPAttr{State: verbs.QPStateRTR, DestQPN: dest, AH: verbs.AHAttr{DGID: p.h.gid}, PathMTU: verbs.MTU4096,
		RNRRetry: verbs.RNRForever, Timeout: 14, RetryCnt: 7}
	require.NoError(p.t, p.h.ModifyQP(qpn, &verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPMaskState))
	require.NoError(p.t, p.h.ModifyQP(qpn, &attr, 1<<21-1))
	attr.State = verbs.QPStateRTS
	require.NoError(p.t, p.h.ModifyQP(qpn, &attr, verbs.QPMaskState))
}

// send posts a message of one byte to the SRQ.
func (p *xrcPair) send() {
	p.t.Helper()
	view, err := prm.NewSQView(p.mem.at(pairSQ), 8, p.from, verbs.QPTypeXRCSend)
	require.NoError(p.t, err)
	ring := prm.NewSendRing(view, verbs.QPCap{MaxInline: 64}, false)
	require.NotZero(p.t, ring.Encode(uint32(p.posted), &verbs.SendWR{Opcode: verbs.OpSend, SRQN: p.srqn, Flags: verbs.SendInline, Inline: []byte{1}}, nil))
	p.posted++
	prm.NewDBRec(p.mem.at(pairSendRec)).StoreSend(p.posted)
	p.h.qps.find(p.from).runOrSchedule()
	driveUntilIdle(p.h)
}

// setState moves a QP to ERR or RESET.
func (p *xrcPair) setState(qpn uint32, s verbs.QPState) {
	p.t.Helper()
	require.NoError(p.t, p.h.ModifyQP(qpn, &verbs.QPAttr{State: s}, verbs.QPMaskState))
	driveUntilIdle(p.h)
}

// starved returns the QPs that wait for a receive.
func (p *xrcPair) starved() []*queuePair { return (*p.h.outbound.Load())[0].starved }

func (p *xrcPair) close() {
	for _, n := range []uint32{p.from, p.to} {
		require.NoError(p.t, p.h.DestroyQP(n))
	}
	require.NoError(p.t, p.h.DestroySRQ(p.handle))
	require.NoError(p.t, p.h.DestroyCQ(p.cqn))
	require.NoError(p.t, p.h.CloseXRCD(p.xrcdn))
}

// A send with unlimited retries that waits for a receive uses no timer and leaves no work to Drive.
func TestXRC_WaitIsIdle(t *testing.T) {
	p := newXRCPair(t)
	h := p.h
	p.send()
	assert.Zero(t, h.nextTimer(), "a timer runs")
	assert.Zero(t, h.ctl.attention.Load()&attnTimer)
	assert.Len(t, p.starved(), 1)

	// A receive that is too small, so that the message fails without a region.
	prm.EncodeRecv(unsafe.Slice((*prm.Seg)(p.mem.at(pairSRQ+16)), 1), nil)
	prm.NewDBRec(p.mem.at(pairSRQRec)).StoreRecv(1)
	h.RecvDoorbell(p.handle).Posted()
	driveUntilIdle(h)
	assert.Equal(t, verbs.QPStateErr, verbs.QPState(h.qps.find(p.from).state.Load()))
	p.close()
}

// After a reset a QP no longer waits for the receive: a later wait, here until a receive is no longer
// claimed, ends normally.
func TestXRC_ResetWhileWaiting(t *testing.T) {
	for _, through := range [][]verbs.QPState{{verbs.QPStateErr, verbs.QPStateReset}, {verbs.QPStateReset}} {
		p := newXRCPair(t)
		p.send()
		require.Len(t, p.starved(), 1)
		for _, s := range through {
			p.setState(p.from, s)
		}
		assert.Empty(t, p.starved())
		p.up(p.from, p.to)
		p.posted = 0
		prm.NewDBRec(p.mem.at(pairSendRec)).StoreSend(0)
		p.h.claims.Of(p.srqn).Store(table.Claimed(5, 0))
		p.send()
		assert.NotZero(t, p.h.nextTimer(), "no timer wakes the QP")
		p.close()
	}
}

// A QP that is destroyed while it waits for a receive is removed from the list.
func TestXRC_DestroyWhileWaiting(t *testing.T) {
	p := newXRCPair(t)
	p.send()
	require.Len(t, p.starved(), 1)
	p.close()
	assert.Empty(t, p.starved())
}

// New queues reuse the slots of closed ones, with other numbers.
func TestXRCSRQ_Numbers(t *testing.T) {
	p := newXRCPair(t)
	defer p.close()
	seen := map[uint32]bool{p.srqn: true}
	for range 3 * srqReuseAt {
		handle, srqn, err := p.h.CreateXRCSRQ(p.srqParams())
		require.NoError(t, err)
		require.False(t, seen[srqn], "number %#x is reused", srqn)
		require.Less(t, srqn, uint32(1<<24))
		seen[srqn] = true
		require.NoError(t, p.h.DestroySRQ(handle))
	}
	assert.LessOrEqual(t, p.h.srqIDs.next, uint32(srqReuseAt+1), "slots")
}

// A new target gets a QP number whose accesses by peers have ended meanwhile, as any QP does.
func TestXRC_TargetReleasesNumbers(t *testing.T) {
	h := openUndriven(t)
	xrcdn, err := h.OpenXRCD(verbs.XRCDInitAttr{FD: verbs.PrivateXRCD})
	require.NoError(t, err)
	freed := false
	var word guard.Word
	peer := &inLink{}
	peer.state.Store(linkUp)
	word.Enter(unknownRegion, true)
	inside, _ := guard.Look(peer, &word)
	peer.state.Store(linkDown)
	h.owner.Free([]guard.Visit{inside}, 0, func() { freed = true })
	require.False(t, freed)
	qpn, _, err := h.CreateTarget(xrcdn)
	require.NoError(t, err)
	assert.True(t, freed)
	require.NoError(t, h.DestroyQP(qpn))
	require.NoError(t, h.CloseXRCD(xrcdn))
}

// A post to a destroyed queue does not publish receives in its former slot.
func TestXRCSRQ_PostAfterDestroy(t *testing.T) {
	p := newXRCPair(t)
	defer p.close()
	handle, srqn, err := p.h.CreateXRCSRQ(p.srqParams())
	require.NoError(t, err)
	doorbell := p.h.RecvDoorbell(handle)
	require.NoError(t, p.h.DestroySRQ(handle))
	prm.NewDBRec(p.mem.at(pairSRQRec)).StoreRecv(1)
	doorbell.Posted()
	assert.Zero(t, p.h.table.SRQ(srqn).Posted.Load())
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

// An SRQ does not close while a peer fills one of its receives; it closes when the access is over.
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
	m.guard(0).Leave(seq)
	require.NoError(t, s.xsrq.Close())
}
