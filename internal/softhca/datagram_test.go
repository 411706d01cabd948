package softhca_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gucx/gucx/internal/softhca"
	"github.com/gucx/gucx/uct/ib/verbs"
)

const (
	testQKey = 0x1234
	grhLen   = 40
)

// datagrams returns a node with a UD QP on n's device.
func (n *node) datagrams() *node {
	n.t.Helper()
	u := *n
	var err error
	u.qp, err = n.pd.CreateQP(verbs.QPInitAttr{Type: verbs.QPTypeUD, SendCQ: n.cq, RecvCQ: n.cq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 2, MaxRecvSGE: 2}})
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, u.qp.Close()) })
	require.NoError(n.t, u.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: testQKey},
		verbs.QPMaskState|verbs.QPMaskPort|verbs.QPMaskPKeyIndex|verbs.QPMaskQKey))
	require.NoError(n.t, u.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPMaskState))
	require.NoError(n.t, u.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPMaskState|verbs.QPMaskSQPSN))
	return &u
}

// roundTrip sends from a to b over their RC QPs. b's device has then handled all earlier packets of
// a, on any QP, as they use the same ring.
func roundTrip(a, b *node) {
	a.t.Helper()
	b.recv(1000, 0, 64)
	a.send(verbs.SendWR{ID: 1000, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 1)}})
	a.succeed(1000)
	b.succeed(1000)
}

func (n *node) address(gid verbs.GID) *verbs.AH {
	n.t.Helper()
	ah, err := n.pd.CreateAH(verbs.AHAttr{DGID: gid, Global: true, Port: 1, HopLimit: 64})
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, ah.Close()) })
	return ah
}

func (n *node) datagram(id uint64, ah *verbs.AH, qpn, qkey uint32, length int) {
	n.t.Helper()
	n.send(verbs.SendWR{ID: id, Opcode: verbs.OpSendWithImm, Imm: uint32(id), Flags: verbs.SendSignaled,
		SGList: []verbs.SGE{n.mr.SGE(0, length)}, AH: ah, RemoteQPN: qpn, RemoteQKey: qkey})
}

// A datagram arrives with its GRH and immediate; datagrams without receive, with a wrong Q_Key or to
// an unknown QP are dropped without an error.
func TestDatagram(t *testing.T) {
	fabrics(t, defaultLink, func(t *testing.T, a, b *node) {
		ua, ub := a.datagrams(), b.datagrams()
		to := ua.address(b.gid)
		roundTrip(a, b)
		fill(a.buf.Bytes(), 3)

		ua.datagram(1, to, ub.qp.Number(), testQKey, 100) // no receive is posted
		ua.succeed(1)
		roundTrip(a, b)
		ub.recv(10, 0, 4096+grhLen)
		ua.datagram(2, to, ub.qp.Number(), testQKey+1, 100) // wrong Q_Key
		ua.succeed(2)
		ua.datagram(3, to, ub.qp.Number()+1000, testQKey, 100) // no such QP
		ua.succeed(3)
		ua.datagram(4, to, ub.qp.Number(), testQKey, 4096)
		ua.succeed(4)

		wc := ub.succeed(10)
		assert.EqualValues(t, 4, wc.Imm, "the others were dropped")
		assert.EqualValues(t, 4096+grhLen, wc.ByteLen)
		assert.Equal(t, ua.qp.Number(), wc.SrcQP)
		assert.NotZero(t, wc.Flags&verbs.WCGRH)
		got := b.buf.Bytes()
		assert.Equal(t, a.buf.Bytes()[:4096], got[grhLen:grhLen+4096])
		assert.EqualValues(t, 4096, binary.BigEndian.Uint16(got[4:6]), "payload length in the GRH")
		assert.Equal(t, a.gid[:], got[8:24])
		assert.Equal(t, b.gid[:], got[24:40])
	})
}

// A stopped peer delays datagrams to other peers only for udTimeout.
func TestDatagram_StoppedPeer(t *testing.T) {
	a, b := openNode(t, softhca.Config{}), openNode(t, softhca.Config{})
	connect(a, b, defaultLink)
	roundTrip(a, b)
	c := startChild(t, openNode(t, softhca.Config{}), "idle")
	c.Stop(t)
	ua, ub := a.datagrams(), b.datagrams()
	ub.recv(10, 0, 200)
	ua.datagram(1, ua.address(c.GID), c.QPN, testQKey, 100)
	ua.datagram(2, ua.address(b.gid), ub.qp.Number(), testQKey, 100)
	ua.succeed(1) // dropped, as on a wire
	ua.succeed(2)
	assert.EqualValues(t, 2, ub.succeed(10).Imm)
}

// A peer that is stopped in the middle of a stream of datagrams, and whose ring is full, delays datagrams to
// other peers only once, for udTimeout.
func TestDatagram_PeerStopsWithAFullRing(t *testing.T) {
	a, b := openNode(t, softhca.Config{}), openNode(t, softhca.Config{})
	connect(a, b, defaultLink)
	roundTrip(a, b)
	n := a.sibling()
	c := startChild(t, n, "idle")
	n.write(c)
	n.succeed(1) // the link is up
	ua, ub := a.datagrams(), b.datagrams()
	toC := ua.address(c.GID)
	c.Stop(t)
	const more = 2 * (1 << 20) / 4096 // more than fit into a ring
	for id := range uint64(more) {
		ua.datagram(id, toC, c.QPN, testQKey, 4096)
		ua.succeed(id)
	}
	ub.recv(10, 0, 200)
	ua.datagram(1, ua.address(b.gid), ub.qp.Number(), testQKey, 100)
	ua.succeed(1)
	assert.EqualValues(t, 1, ub.succeed(10).Imm)
}

// A datagram to a port that does not exist succeeds, like any lost datagram, and raises an event;
// several datagrams may share one event.
func TestDatagram_NoPort(t *testing.T) {
	u := openNode(t, softhca.Config{}).datagrams()
	unusedGID := verbs.GID{0: 0xfe, 1: 0x80, 15: 9}
	ah := u.address(unusedGID)
	for id := range uint64(3) {
		u.datagram(id, ah, 1, testQKey, 8)
		u.succeed(id)
	}
	ev, err := u.ctx.NextAsyncEvent()
	require.NoError(t, err)
	assert.Equal(t, verbs.AsyncEvent{Type: verbs.EventUnreachable, QP: u.qp, GID: unusedGID}, ev)
}
