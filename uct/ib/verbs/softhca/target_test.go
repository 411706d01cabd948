package softhca

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gucx/gucx/uct/ib/verbs"
	"github.com/gucx/gucx/uct/ib/verbs/softhca/internal/xrcdomain"
)

// Another member resets a target and connects it again while a message arrives here: the
// receive that it had taken is flushed, and the first message of the new connection, which
// begins with another number, is received.
func TestTarget_ConnectedAnewElsewhere(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	target, q := &s.qps[xrcTarget], s.h.xrcSRQs.find(s.xsrq.Number())
	pkt, payload := s.next(xrcTarget, pktSend, flagFirst|flagXRC, 8, 16)
	pkt.ext = q.srqn
	require.True(t, s.peers[0].request(pkt, payload))
	settled(s.h)
	require.True(t, target.q.resp.open.begun())
	e := target.q.entry
	e.state.Store(uint32(verbs.QPStateReset))
	e.rqPSN.Store(77)
	e.epoch.Add(1)
	e.state.Store(uint32(verbs.QPStateRTS))
	pkt, payload = s.next(xrcTarget, pktSend, flagOnly|flagXRC, 8, 8)
	pkt.ext, pkt.msn = q.srqn, 77
	require.True(t, s.peers[0].request(pkt, payload))
	settled(s.h)
	var wcs [4]verbs.WC
	require.Equal(t, 2, s.cq.Poll(wcs[:]))
	assert.Equal(t, verbs.WCWRFlushErr, wcs[0].Status)
	assert.Equal(t, verbs.WCSuccess, wcs[1].Status)
	assert.Equal(t, uint32(8), wcs[1].ByteLen)
	s.posts = nil // they are accounted for here
}

// elsewhere is a target in RESET that another member has made for an initiator; its first
// message has number 5.
func elsewhere(t *testing.T, d *xrcDomain, gid verbs.GID, initiator uint32) (number uint32, e *qpEntry) {
	t.Helper()
	number, err := d.dir.AddQP()
	require.NoError(t, err)
	e = targetEntry(&d.dir.View, number)
	e.qpn.Store(number)
	e.service.Store(uint32(verbs.QPTypeXRCRecv))
	e.destQPN.Store(initiator)
	e.setDestGID(gid)
	e.rqPSN.Store(5)
	e.epoch.Store(1)
	return number, e
}

// A packet over a target that this device has not opened makes a responder; it goes when the
// target does, and what it had taken is flushed.
func TestTarget_OfAnotherMember(t *testing.T) {
	s := newSharedSiege(t)
	s.begin(t)
	defer s.end()
	d, q, p := s.qps[xrcTarget].q.domain, s.h.xrcSRQs.find(s.xsrq.Number()), s.peers[0]
	const initiator = foreign + 77
	number, e := elsewhere(t, d, p.gid, initiator)
	pkt := packet{op: pktSend, flags: flagFirst | flagXRC, dstQPN: number, srcQPN: initiator, msn: 5, ext: q.srqn,
		payload: 8, dmaLen: 16}
	payload := make([]byte, 8)
	require.True(t, p.request(pkt, payload))
	settled(s.h)
	each := func(*queuePair) bool { return true }
	require.Nil(t, s.h.targets.find(number, each), "it is in RESET")
	e.state.Store(uint32(verbs.QPStateRTR))
	require.True(t, p.request(pkt, payload))
	settled(s.h)
	qp := s.h.targets.find(number, each)
	require.NotNil(t, qp)
	require.True(t, qp.resp.open.begun())
	live := s.h.qpIDs.live()
	gone, err := d.dir.CloseQP(number)
	require.NoError(t, err)
	require.True(t, gone)
	other := pkt
	other.dstQPN ^= 1 << 15
	require.True(t, p.request(other, payload)) // who looks for another one finds that it has gone
	settled(s.h)
	assert.Nil(t, s.h.targets.find(number, each))
	assert.Equal(t, live-1, s.h.qpIDs.live())
	var wcs [4]verbs.WC
	require.Equal(t, 1, s.cq.Poll(wcs[:]))
	assert.Equal(t, verbs.WCWRFlushErr, wcs[0].Status)
	assert.Equal(t, number, wcs[0].QPN)
	s.posts = nil
}

// The table finds what is in it, whatever shares a bucket.
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
				table.remove(qp) // again does nothing
				delete(model, qp)
			}
			for qp := range model {
				assert.Same(t, qp, table.find(qp.qpn, func(found *queuePair) bool { return found == qp }))
			}
		}
	})
}
