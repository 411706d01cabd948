package softhca

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/internal/mlx5/prm"
	"github.com/gucx/gucx/internal/softhca/internal/ring"
	"github.com/gucx/gucx/internal/softhca/internal/table"
	"github.com/gucx/gucx/internal/softhca/internal/xrcdomain"
	"github.com/gucx/gucx/ucs"
	"github.com/gucx/gucx/uct/ib/verbs"
)

// Another member resets a target and connects it again while a message arrives here: the receive that
// the message has consumed is flushed, and the first message of the new connection, which has another
// number, is received.
func TestTarget_ReconnectedByAnotherMember(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	target, q := &s.qps[xrcTarget], s.h.xrcSRQs.find(s.xsrq.Number())
	pkt, payload := s.next(xrcTarget, ring.OpSend, ring.FlagFirst|ring.FlagXRC, 8, 16)
	pkt.Ext = q.srqn
	require.True(t, s.peers[0].request(pkt, payload))
	driveUntilIdle(s.h)
	require.True(t, target.q.resp.open.begun())
	e := target.q.entry
	changeElsewhere(t, e, verbs.QPStateReset)
	e.RQPSN.Store(77)
	changeElsewhere(t, e, verbs.QPStateRTR)
	pkt, payload = s.next(xrcTarget, ring.OpSend, flagOnly|ring.FlagXRC, 8, 8)
	pkt.Ext, pkt.MSN = q.srqn, 77
	require.True(t, s.peers[0].request(pkt, payload))
	driveUntilIdle(s.h)
	var wcs [4]verbs.WC
	require.Equal(t, 2, s.cq.Poll(wcs[:]))
	assert.Equal(t, verbs.WCWRFlushErr, wcs[0].Status)
	assert.Equal(t, verbs.WCSuccess, wcs[1].Status)
	assert.Equal(t, uint32(8), wcs[1].ByteLen)
	s.posts = nil // checked above
}

// A target is destroyed while the device checks the sender of a notice: the notice was sent before, and
// its receive completes. The race detector makes the check slow enough for this race.
func TestTarget_DestroyedDuringNotice(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "domain"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	gid := verbs.GID{15: 1}
	dir, err := xrcdomain.Join(int(f.Fd()), os.O_CREATE, gid, func() {})
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.Close()) }()
	d, l := &xrcDomain{dir: dir}, &inLink{gid: table.GIDWords(gid), sameUser: true}
	for range 2_000 {
		number, err := dir.AddQP()
		require.NoError(t, err)
		pkt, e := &ring.Packet{DstQPN: number, SrcQPN: 7}, table.TargetEntry(&dir.View, number)
		e.SetDestGID(gid)
		e.DestQPN.Store(pkt.SrcQPN)
		e.QPN.Store(number)
		closed := make(chan error, 1)
		go func() {
			_, err := dir.CloseQP(number)
			closed <- err
		}()
		for !e.Destroyed(number) {
			require.True(t, l.isSender(d, pkt))
			runtime.Gosched() // there may be only one CPU
		}
		require.NoError(t, <-closed)
	}
}

// changeElsewhere changes the state like another member.
func changeElsewhere(t *testing.T, e *table.QP, to verbs.QPState) {
	t.Helper()
	require.True(t, e.Change(e.Load(), to))
}

// Another member, or the device, moves a target to ERR while this member is about to change its state:
// the fault is not lost.
func TestTarget_FailsDuringModify(t *testing.T) {
	xrcSieges(t, func(t *testing.T, s *siege) {
		q := s.qps[xrcTarget].q
		if e := q.entry; q.isShared() {
			changeElsewhere(t, e, verbs.QPStateErr)
		} else {
			q.stop()
		}
		err := s.h.ModifyQP(q.handle, &verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPMaskState)
		require.ErrorIs(t, err, ucs.ErrInvalidState)
		assert.Equal(t, verbs.QPStateErr, s.qps[xrcTarget].v.State())
	})
}

// A change of another member after the last sync of this one is not undone.
func TestTarget_ChangedElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		elsewhere []verbs.QPState
		here      verbs.QPState
	}{
		"failed":          {[]verbs.QPState{verbs.QPStateErr}, verbs.QPStateRTS},
		"reset":           {[]verbs.QPState{verbs.QPStateReset}, verbs.QPStateErr},
		"reconnected":     {[]verbs.QPState{verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS}, verbs.QPStateErr},
		"to be connected": {[]verbs.QPState{verbs.QPStateReset, verbs.QPStateInit}, verbs.QPStateErr},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSharedSiege(t)
			s.begin(t)
			defer s.end()
			q := s.qps[xrcTarget].q
			for _, to := range c.elsewhere {
				changeElsewhere(t, q.entry, to)
			}
			want := q.entry.Load()
			assert.False(t, q.setState(c.here))
			q.stop()
			assert.Equal(t, want, q.entry.Load())
			require.True(t, q.setState(verbs.QPStateReset), "from any state")
		})
	}
}

// When a device is gone, the targets that are connected to it fail, but not a target that was connected
// to it before and is about to be connected to another device.
func TestTarget_InitiatorDies(t *testing.T) {
	xrcSieges(t, func(t *testing.T, s *siege) {
		gid, target := table.GIDWords(s.peers[0].gid), s.qps[xrcTarget].v
		s.h.failTargets(table.GIDWords(s.peers[1].gid))
		assert.Equal(t, verbs.QPStateRTS, target.State(), "the target of another initiator")
		s.h.failTargets(gid)
		assert.Equal(t, verbs.QPStateErr, target.State())
		require.NoError(t, target.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPMaskState))
		require.NoError(t, target.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1},
			verbs.QPMaskState|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskAccessFlags))
		s.h.failTargets(gid)
		assert.Equal(t, verbs.QPStateInit, target.State())
	})
}

// elsewhere returns a target in RESET that another member has created for an initiator. Its first
// message has number 5.
func elsewhere(t *testing.T, d *xrcDomain, gid verbs.GID, initiator uint32) (number uint32, e *table.QP) {
	t.Helper()
	number, err := d.dir.AddQP()
	require.NoError(t, err)
	e = table.TargetEntry(&d.dir.View, number)
	e.QPN.Store(number)
	e.Service.Store(uint32(verbs.QPTypeXRCRecv))
	e.DestQPN.Store(initiator)
	e.SetDestGID(gid)
	e.RQPSN.Store(5)
	return number, e
}

// A packet over a target that this device has not opened creates a responder. It is destroyed after the
// target, and the receive that it has consumed is flushed.
func TestTarget_OfAnotherMember(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	d, q, p := s.qps[xrcTarget].q.domain, s.h.xrcSRQs.find(s.xsrq.Number()), s.peers[0]
	const initiator = foreign + 77
	number, e := elsewhere(t, d, p.gid, initiator)
	pkt := ring.Packet{Op: ring.OpSend, Flags: ring.FlagFirst | ring.FlagXRC, DstQPN: number, SrcQPN: initiator, MSN: 5, Ext: q.srqn,
		Payload: 8, Total: 16}
	payload := make([]byte, 8)
	require.True(t, p.request(pkt, payload))
	driveUntilIdle(s.h)
	each := func(*queuePair) bool { return true }
	require.Nil(t, s.h.targets.find(number, each), "a responder for a target in RESET")
	changeElsewhere(t, e, verbs.QPStateRTR)
	require.True(t, p.request(pkt, payload))
	driveUntilIdle(s.h)
	qp := s.h.targets.find(number, each)
	require.NotNil(t, qp)
	require.True(t, qp.resp.open.begun())
	live := s.h.qpIDs.live()
	gone, err := d.dir.CloseQP(number)
	require.NoError(t, err)
	require.True(t, gone)
	s.h.failTargets(table.GIDWords(s.peers[1].gid)) // as after the death of the process with that GID
	assert.Nil(t, s.h.targets.find(number, each))
	assert.Equal(t, live-1, s.h.qpIDs.live())
	var wcs [4]verbs.WC
	require.Equal(t, 1, s.cq.Poll(wcs[:]))
	assert.Equal(t, verbs.WCWRFlushErr, wcs[0].Status)
	assert.Equal(t, number, wcs[0].QPN)
	s.posts = nil
}

// While a target is destroyed, no other thread destroys its responder: its number would be freed twice,
// and then two QPs could get it.
func TestTarget_NumberFreedOnce(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	d := s.qps[xrcTarget].q.domain
	handle, _, err := s.h.CreateTarget(d.xrcdn)
	require.NoError(t, err)
	qp, live := s.h.qps.find(handle), s.h.qpIDs.live()
	last, err := s.h.dropRef(qp)
	require.NoError(t, err)
	require.True(t, last)
	s.h.failTargets(table.GIDWords(s.peers[1].gid)) // as if a device has died meanwhile
	assert.Equal(t, live, s.h.qpIDs.live())
	s.h.destroy(qp, qp.peer())
	assert.Equal(t, live-1, s.h.qpIDs.live())
}

// The report of a fault belongs to one connection: a late report, after a RESET and another connection, does
// not affect the new one.
func TestFault_OfFormerConnection(t *testing.T) {
	s := newSiege(t)
	s.begin(t)
	defer s.end()
	for _, i := range []int{0, 1, xrcTarget} {
		q := &s.qps[i]
		for _, c := range []struct {
			psn  uint32
			want bool // the target goes to ERR
		}{{siegePSN - 1, false}, {0, false}, {siegePSN, true}} {
			require.True(t, s.peers[q.peer].request(ring.Packet{Op: ring.OpFault, SrcQPN: q.remote, DstQPN: q.v.Number(), MSN: c.psn,
				Status: uint8(prm.SyndromeRemoteInvalidReq)}, nil))
			driveUntilIdle(s.h)
			require.Equal(t, c.want, q.v.State() == verbs.QPStateErr, "QP %d, PSN %#x", i, c.psn)
		}
	}
}

// A packet to a number that no domain has searches the domains, and no QPs: a peer can send any number
// of such packets.
func TestTarget_UnknownNumber(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	id, _, ok := s.h.qpIDs.get()
	require.True(t, ok)
	gone := &queuePair{hca: s.h, handle: id, qpn: 1, domain: s.qps[xrcTarget].q.domain, entry: new(table.QP)}
	s.h.qps.slot.Store(id, gone) // a sweep would remove it
	s.h.targets.add(gone)
	for _, number := range []uint32{xrcdomain.NumberBit, s.qps[xrcTarget].v.Number() ^ 1<<15} {
		pkt, payload := s.next(xrcTarget, ring.OpSend, flagOnly|ring.FlagXRC, 8, 8)
		pkt.DstQPN = number
		require.True(t, s.peers[0].request(pkt, payload))
		driveUntilIdle(s.h)
		var answers []ring.Packet
		s.peers[0].drain(func(p *ring.Packet) { answers = append(answers, *p) })
		require.Len(t, answers, 1)
		assert.Equal(t, [2]uint8{ring.OpNak, uint8(prm.SyndromeRetryExceeded)}, [2]uint8{answers[0].Op, answers[0].Status})
	}
	assert.Same(t, gone, s.h.qps.slot.Load(id))
	s.h.dropResponders((*queuePair).replaced)
	assert.Nil(t, s.h.qps.slot.Load(id))
}

// If no QP number is free, packets to targets without a responder here cause one sweep for as many packets
// as there are responders; the sweep frees the numbers of responders whose targets are gone.
func TestTarget_NumbersExhausted(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	d, q, p := s.qps[xrcTarget].q.domain, s.h.xrcSRQs.find(s.xsrq.Number()), s.peers[0]
	each := func(*queuePair) bool { return true }
	var numbers [4]uint32
	arrives := func(i int) {
		require.True(t, p.request(ring.Packet{Op: ring.OpSend, Flags: ring.FlagFirst | ring.FlagXRC, DstQPN: numbers[i],
			SrcQPN: foreign + 77 + uint32(i), MSN: 5, Ext: q.srqn, Payload: 8, Total: 16}, make([]byte, 8)))
		driveUntilIdle(s.h)
		p.drain(func(*ring.Packet) {})
	}
	last := len(numbers) - 1
	var taken []uint32
	for i := range numbers {
		number, e := elsewhere(t, d, p.gid, foreign+77+uint32(i))
		changeElsewhere(t, e, verbs.QPStateRTR)
		if numbers[i] = number; i < last {
			arrives(i)
			require.NotNil(t, s.h.targets.find(number, each))
		}
	}
	for id, _, ok := s.h.qpIDs.get(); ok; id, _, ok = s.h.qpIDs.get() {
		taken = append(taken, id)
	}
	arrives(last)
	require.Nil(t, s.h.targets.find(numbers[last], each), "a responder without a free number")
	gone, err := d.dir.CloseQP(numbers[0])
	require.NoError(t, err)
	require.True(t, gone)
	for range s.h.targets.size() {
		arrives(last)
		require.NotNil(t, s.h.targets.find(numbers[0], each), "a sweep for one packet")
	}
	arrives(last)
	assert.Nil(t, s.h.targets.find(numbers[0], each))
	assert.NotNil(t, s.h.targets.find(numbers[last], each))
	for _, id := range taken {
		s.h.qpIDs.put(id)
	}
	for _, number := range numbers[1:] {
		_, err := d.dir.CloseQP(number)
		require.NoError(t, err)
	}
	s.h.driving.Lock()
	s.h.dropResponders((*queuePair).replaced)
	s.h.driving.Unlock()
	var wcs [8]verbs.WC
	s.cq.Poll(wcs[:])
	s.posts = nil
}

// The table finds its entries, also those that share a bucket.
func TestTargetTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table targetTable
		model := map[*queuePair]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			number := xrcdomain.NumberBit | rapid.Uint32Range(0, 3).Draw(t, "n")*targetBuckets | rapid.Uint32Range(0, 1).Draw(t, "bucket")
			if rapid.Bool().Draw(t, "add") {
				qp := &queuePair{qpn: number}
				table.add(qp)
				model[qp] = true
			} else if qp := table.find(number, func(*queuePair) bool { return true }); qp != nil {
				assert.True(t, model[qp])
				table.remove(qp)
				table.remove(qp) // a second time it has no effect
				delete(model, qp)
			}
			for qp := range model {
				assert.Same(t, qp, table.find(qp.qpn, func(found *queuePair) bool { return found == qp }))
			}
		}
	})
}

// faults records the reported events.
type faults struct{ types []verbs.EventType }

func (f *faults) AsyncEvent(t verbs.EventType, _ uint32) { f.types = append(f.types, t) }
func (f *faults) Unreachable(_ uint32, _ verbs.GID)      {}

// A member raises only events for faults of targets, whatever another process writes to the directory: no
// event of the device, or of a queue with the same number.
func TestTarget_InvalidFaultInDirectory(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	q := s.qps[xrcTarget].q
	var got faults
	sink := prm.AsyncSink(&got)
	defer s.h.sink.Store(s.h.sink.Swap(&sink))
	const beyond = 1 << 8 // of verbs.EventType
	for _, c := range []struct {
		word uint32
		want verbs.EventType
	}{
		{uint32(verbs.EventQPFatal), verbs.EventQPFatal},
		{uint32(verbs.EventQPAccessErr), verbs.EventQPAccessErr},
		{uint32(verbs.EventQPReqErr), verbs.EventQPReqErr},
		{uint32(verbs.EventDeviceFatal), verbs.EventQPReqErr},
		{uint32(verbs.EventSRQErr), verbs.EventQPReqErr},
		{beyond | uint32(verbs.EventCQErr), verbs.EventQPReqErr},
		{beyond | uint32(verbs.EventQPFatal), verbs.EventQPReqErr},
	} {
		for _, to := range []verbs.QPState{verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateErr} {
			changeElsewhere(t, q.entry, to)
		}
		q.entry.Fault.Store(c.word)
		got.types = nil
		s.h.reportFaults(q.domain)
		s.h.reportFaults(q.domain)
		assert.Equal(t, []verbs.EventType{c.want}, got.types, "%#x, once", c.word)
	}
}
